// Steps on devices that are refused: what they leave, and how the run continues. Ranks are threads, each with a device
// that the host plays.

#include <gtest/gtest.h>

#include "base/exit_codes.h"
#include "base/testing/folder_test.h"
#include "train/testing/device_case.h"
#include "train/testing/steps.h"
#include "watch/refused_steps.h"
#include "watch/testing/planned_numbers.h"

namespace athanor::device_refused_test {
namespace {

using guarded::Order;

const std::vector<LayoutCase> kDeviceLayouts = {
    {.name = "one", .dtype = "bfloat16"},
    {.name = "data", .data = 2},
    {.name = "tensor and experts", .data = 2, .tensor = 2, .expert = 2, .dtype = "bfloat16", .sequence = true},
    {.name = "pipeline", .pipeline = 2},
};

// Everything that a step may change, on the host.
std::vector<Tensor> bits_of(TrainState& state) {
  state.model.gatherer.wait_all();
  const ParameterStore& parameters = state.model.parameters;
  std::vector<Tensor> all = {parameters.compute(), parameters.master_low(), state.model.router_bias,
                             state.model.previous_share};
  for (const auto& optimizer : state.optimizer.set.optimizers())
    for (const HeldState& held : optimizer->state()) all.push_back(held.values);
  std::vector<Tensor> here;
  for (const Tensor& each : all)
    if (each.defined()) here.push_back(ops::fetch(each).clone());
  return here;
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return same_bits(x, y); });
}

// Batch `number` of a run, of which the ledger knows the next one.
Batch batch_of(const RunConfig& config, int number) {
  Batch batch = fixed_batch(config);
  for (size_t i = 0; i < batch.tokens.size(); ++i)
    batch.tokens[i] =
        static_cast<int32_t>((static_cast<size_t>(batch.tokens[i]) * 5 + i + 11 * static_cast<size_t>(number)) % 63);
  batch.next.sources["data"].drawn = config.train.global_batch_size * number;
  return batch;
}

class OnDevicesRefused : public FolderTest {
 protected:
  RunConfig config_of(const LayoutCase& layout, const std::string& on_non_finite) const {
    RunConfig config = config_with(layout);
    config.model.num_hidden_layers = 2;
    config.train.global_batch_size = int64_t{2} * layout.data;
    config.topology.ranks_per_node = 1;
    config.moe.bias_update_rate = 0.01;
    config.moe.aux_scope = "global";
    config.train.run_dir = folder_.string();
    config.train.on_non_finite = on_non_finite;
    return config;
  }

  // Trains on batches 1 to 3, of which one gives NaN if `bad` is one of them, and one may be left out.
  // Returns the bits of all ranks at the end.
  static std::vector<std::vector<Tensor>> train(const RunConfig& config, int ranks, int bad, int left_out,
                                                const Order& order) {
    std::vector<std::vector<Tensor>> bits(static_cast<size_t>(ranks));
    comm::run_device_ranks(ranks, [&](comm::World& world, at::Device device) {
      guarded::queues().set_order(order);
      Mesh mesh(Layout(config, ranks), world);
      mesh.use(device);
      TrainState state(config, {}, mesh, {.device = device});
      initialize_parameters(config.model, 1, state.model.parameters);
      RunContext at;
      const auto spoils = std::make_shared<BadSequence>(1, "model.layers.1.mlp");
      if (bad > 0) state.observers.add(spoils);
      RefusedSteps refused(state, at);
      for (int number = 1; number <= 3; ++number) {
        if (number == left_out) continue;
        spoils->set_active(number == bad);
        const Batch batch =
            held_by(batch_of(config, number), mesh.layout(), mesh.data_rank(), config.train.micro_batch_size);
        const auto before = number == bad ? bits_of(state) : std::vector<Tensor>();
        const StepReport report = train_step(state, batch);
        EXPECT_EQ(report.verdict, number == bad ? Verdict::kRefuse : Verdict::kApply);
        if (number != bad) {
          EXPECT_TRUE(refused.fate_of(report, batch, 0).is_applied);
          continue;
        }
        EXPECT_TRUE(same(before, bits_of(state))) << "the step changed something";
        if (config.train.on_non_finite == OnNonFinite::kRollBack) {
          const StepFate fate = refused.fate_of(report, batch, /*saved_step=*/1);
          ASSERT_TRUE(fate.roll_back);
          EXPECT_EQ(fate.roll_back->ledger.sources.at("data").drawn, batch.next.sources.at("data").drawn);
        } else {
          EXPECT_FALSE(refused.fate_of(report, batch, 0).is_applied);
          EXPECT_EQ(state.position.ledger.sources.at("data").drawn, batch.next.sources.at("data").drawn);
        }
        EXPECT_EQ(state.position.step, number - 1);
        EXPECT_TRUE(same(before, bits_of(state))) << "the verdict changed something";
        EXPECT_FALSE(ops::fetch(state.model.parameters.grad()).any().item<bool>());
      }
      bits[static_cast<size_t>(world.rank())] = bits_of(state);
      guarded::queues().synchronize_all();
      world.all().barrier();
      guarded::queues().set_order({});
    });
    return bits;
  }
  void continues_without_its_batch(const LayoutCase& layout, const std::vector<std::string>& ways);
};
class TestAllOnDevicesRefused : public OnDevicesRefused {};

void OnDevicesRefused::continues_without_its_batch(const LayoutCase& layout, const std::vector<std::string>& ways) {
  const auto expected = train(config_of(layout, "skip"), layout.ranks(), 0, 2, {});
  for (const std::string& how : ways) {
    const auto found = train(config_of(layout, how), layout.ranks(), 2, 0, {Order::Kind::kDrawn, 2});
    for (size_t r = 0; r < expected.size(); ++r)
      EXPECT_TRUE(same(expected[r], found[r])) << layout.name << " " << how << " rank " << r;
  }
}

TEST_F(OnDevicesRefused, AStepThatIsRefusedChangesNoBitAndTheRunContinuesAsIfItsBatchHadNotBeen) {
  continues_without_its_batch(kDeviceLayouts[0], {"skip", "roll_back"});
  continues_without_its_batch(kDeviceLayouts[1], {"roll_back"});
  continues_without_its_batch(kDeviceLayouts[3], {"skip"});
}
TEST_F(TestAllOnDevicesRefused, AStepThatIsRefusedChangesNoBitAndTheRunContinuesAsIfItsBatchHadNotBeen) {
  for (const LayoutCase& layout : kDeviceLayouts) continues_without_its_batch(layout, {"skip", "roll_back"});
}

// Graphs are for one rank: with several the setting is without effect, and steps are watched.
TEST_F(OnDevicesRefused, WithCudaGraphsSetForSeveralRanksTheNodeIsNamedAsWithout) {
  RunConfig config = config_of({.name = "", .data = 2}, "stop");
  config.train.cuda_graphs = true;
  comm::run_device_ranks(2, [&](comm::World& world, at::Device device) {
    Mesh mesh(Layout(config, 2), world);
    mesh.use(device);
    TrainState state(config, {}, mesh, {.device = device});
    initialize_parameters(config.model, 1, state.model.parameters);
    EXPECT_FALSE(state.has_graphs);
    RunContext at;
    state.observers.add(std::make_shared<BadNode>(world.rank() == 1 ? 4 : -1, /*always=*/false));
    RefusedSteps refused(state, at);
    const Batch batch = fixed_batch(config);
    const StepReport report = train_step(state, batch);
    try {
      refused.fate_of(report, batch, 0);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const NumbersError& error) {
      EXPECT_EQ(error.exit_code(), exit_code::kNumbersOfANode);
      EXPECT_EQ(error.rank(), 1);
      EXPECT_SAYS(error.what(), "came up on rank 1 (");
    }
  });
}

// ---- one rank whose steps are launched as graphs

class CapturedRefused : public FolderTest {
 protected:
  RunConfig config_of(const std::string& on_non_finite) const {
    RunConfig c = small_device_run("olmoe", "bfloat16");
    c.train.global_batch_size = 8;  // four microbatches, of which the third is recorded
    c.train.cuda_graphs = true;
    c.train.run_dir = folder_.string();
    c.train.on_non_finite = on_non_finite;
    return c;
  }

  static int64_t launches_of(const std::function<void()>& step) {
    const int64_t before = guarded::queues().counts().launches;
    step();
    return guarded::queues().counts().launches - before;
  }

  static Tensor weight(const TrainState& state) {
    return state.model.parameters.weight("model.layers.1.mlp.gate.weight").value;
  }
};

TEST_F(CapturedRefused, AValueOfTheModelIsFoundWhenTheStepIsComputedAgainAndItsPartIsNamed) {
  const RunConfig c = config_of("stop");
  TrainState state(c, {"", 5}, {.device = guarded::device_of_tests()});
  initialize_parameters(c.model, 7, state.model.parameters);
  ASSERT_TRUE(state.has_graphs);
  RunContext at;
  RefusedSteps refused(state, at);
  const Batch batch = fixed_batch(c);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(refused.fate_of(train_step(state, batch), batch, 0).is_applied);
  weight(state).fill_(NAN);
  const StepReport report = train_step(state, batch);
  try {
    refused.fate_of(report, batch, 0);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const NumbersError& error) {
    EXPECT_EQ(error.exit_code(), exit_code::kNumbersEverywhere);
    EXPECT_SAYS(error.what(), "came up here: microbatch 0, forward of model.layers.1.mlp;");
    EXPECT_SAYS(error.what(), "it comes up again when the step is computed again on the same device");
    EXPECT_SAYS(error.what(), "Lower optimizer.lr");
  }
}

TEST_F(CapturedRefused, AValueThatCameUpOnceIsToldAsSuchAndTheRunContinuesWithGraphs) {
  const RunConfig c = config_of("skip");
  TrainState state(c, {"", 5}, {.device = guarded::device_of_tests()});
  initialize_parameters(c.model, 7, state.model.parameters);
  RunContext at;
  at.attempt = 1;
  RefusedSteps refused(state, at);
  const Batch batch = fixed_batch(c);
  StepReport report;
  const auto one_step = [&] { report = train_step(state, batch); };
  const int64_t plain = launches_of(one_step);
  EXPECT_TRUE(refused.fate_of(report, batch, 0).is_applied);
  const int64_t as_graph = launches_of(one_step);
  EXPECT_TRUE(refused.fate_of(report, batch, 0).is_applied);
  EXPECT_LT(as_graph, plain);
  const Tensor kept = weight(state).clone();
  weight(state).fill_(NAN);
  const auto faulty_step = [&] { report = step_with(state, batch, [&] { weight(state).copy_(kept); }); };
  EXPECT_EQ(launches_of(faulty_step), as_graph + 1) << "the faulty step is a graph, too, and a copy";
  EXPECT_EQ(report.verdict, Verdict::kRefuse);
  EXPECT_FALSE(refused.fate_of(report, batch, 0).is_applied);
  const std::string events = read_file(folder_ / "events.jsonl");
  EXPECT_SAYS(events, "all is finite when the step is computed again on the same device: it came up once");
  EXPECT_SAYS(events, "the first gradient that is not finite is that of");
  EXPECT_EQ(launches_of(one_step), as_graph);
  EXPECT_TRUE(refused.fate_of(report, batch, 0).is_applied);
}

}  // namespace
}  // namespace athanor::device_refused_test
