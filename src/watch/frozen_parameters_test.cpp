#include "watch/frozen_parameters.h"

#include <gtest/gtest.h>

#include "comm/thread_ranks.h"
#include "guarded/device.h"
#include "model/initialize.h"
#include "train/testing/batches.h"
#include "train/testing/layout_cases.h"
#include "train/train_step.h"

namespace athanor::frozen_parameters_test {
namespace {

using Names = std::vector<std::string>;

// What a job does in which the updates of a parameter are undone from one step to another.
struct Freeze {
  std::string parameter;
  int64_t from = 1, to = 0;
  double lr = 1e-3;
};

// Returns what each step told; of the first rank, whose names are those of all.
std::vector<Names> run(const LayoutCase& layout, const Freeze& planned, int64_t steps = 6, int64_t interval = 2) {
  RunConfig config = config_with(layout);
  config.optimizer.lr = planned.lr;
  config.train.global_batch_size = layout.data * layout.pipeline;  // as many microbatches as a pipeline needs
  std::vector<Names> told(static_cast<size_t>(steps));
  comm::run_ranks(layout.ranks(), [&](comm::World& world) {
    Mesh mesh(Layout(config, layout.ranks()), world);
    TrainState state(config, {}, mesh);
    initialize_parameters(config.model, 1, state.model.parameters);
    FrozenParameters frozen(state, interval, ops::MemoryHasher::of(at::kCPU));
    const Batch batch = fixed_batch(config);
    const auto& table = state.model.parameters.table();
    const auto held = std::ranges::find(table, planned.parameter, &BucketEntry::name);
    for (int64_t step = 1; step <= steps; ++step) {
      std::vector<float> kept;
      if (held != table.end() && planned.from <= step && step <= planned.to) {
        kept.resize(static_cast<size_t>(held->num_elements()));
        state.model.gatherer.wait_all();
        state.model.parameters.read_master(*held, 0, kept);
      }
      train_step(state, batch);
      state.model.gatherer.wait_all();
      if (!kept.empty()) state.model.parameters.write_master(*held, 0, kept);
      const Names names = frozen.after_update(step, planned.lr);
      if (world.rank() == 0) told[static_cast<size_t>(step - 1)] = names;
      EXPECT_TRUE(names.empty() || world.rank() == 0);
    }
  });
  return told;
}

TEST(FrozenParameters, NoneIsNamedWhereAllParametersLearn) {
  for (const LayoutCase& layout : kLayoutCases)
    for (const Names& names : run(layout, {}, 2, /*interval=*/1)) EXPECT_EQ(names, Names()) << layout.name;
}

// @param both  false: of a norm and a layer's experts one in each layout.
void expect_named_once(bool both) {
  const std::string parameters[] = {"model.layers.1.mlp.experts.up_proj.weight", "model.norm.weight"};
  for (size_t i = 0; i < kLayoutCases.size(); ++i) {
    for (size_t p = 0; p < std::size(parameters); ++p) {
      if (!both && i % 2 != p) continue;
      const auto told = run(kLayoutCases[i], {parameters[p], 1, 3}, 3, /*interval=*/1);
      EXPECT_EQ(told, (std::vector<Names>{{}, {parameters[p]}, {}})) << kLayoutCases[i].name;
    }
  }
}

TEST(TestAllFrozenParameters, OneThatDoesNotMoveIsNamedOnceInEveryLayout) { expect_named_once(/*both=*/true); }

TEST(FrozenParameters, OneThatDoesNotMoveIsNamedOnceInEveryLayout) {
  expect_named_once(/*both=*/false);
  const std::string norm = "model.norm.weight";
  EXPECT_EQ(run({.name = "", .data = 2}, {norm, 1, 6}, 6, /*interval=*/2),
            (std::vector<Names>{{}, {}, {}, {norm}, {}, {}}));
}

TEST(FrozenParameters, OneThatMovedBetweenTwoLooksIsNotNamed) {
  const auto told = run({.name = "", .data = 2}, {"model.norm.weight", 4, 6});
  EXPECT_EQ(told, (std::vector<Names>{{}, {}, {}, {}, {}, {"model.norm.weight"}}));
}

TEST(FrozenParameters, NothingIsNamedWhileTheLearningRateIsZero) {
  for (const Names& names : run({.name = "", .data = 2}, {.parameter = "", .lr = 0})) EXPECT_EQ(names, Names());
}

TEST(FrozenParameters, WithAnIntervalOfZeroNothingIsLookedAt) {
  for (const Names& names : run({.name = "", .data = 2}, {"model.norm.weight", 1, 6}, 6, 0)) EXPECT_EQ(names, Names());
}

TEST(OnDeviceFrozenParameters, OneThatDoesNotMoveIsNamed) {
  for (const std::string dtype : {"float32", "bfloat16"}) {
    const RunConfig config = config_with({.name = "", .dtype = dtype});
    TrainState state(config, {}, {.device = guarded::device_of_tests()});
    initialize_parameters(config.model, 1, state.model.parameters);
    FrozenParameters frozen(state, 1, ops::MemoryHasher::of(state.model.device()));
    const BucketEntry& norm = state.model.parameters.entry("model.norm.weight");
    std::vector<float> kept(static_cast<size_t>(norm.num_elements()));
    state.model.parameters.read_master(norm, 0, kept);
    std::vector<Names> told;
    for (int64_t step = 1; step <= 3; ++step) {
      train_step(state, fixed_batch(config));
      if (step > 1) state.model.parameters.write_master(norm, 0, kept);
      told.push_back(frozen.after_update(step, config.optimizer.lr));
    }
    EXPECT_EQ(told, (std::vector<Names>{{}, {}, {"model.norm.weight"}})) << dtype;
  }
}

}  // namespace
}  // namespace athanor::frozen_parameters_test
