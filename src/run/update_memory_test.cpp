// Compares the memory that an update of Muon takes for a time with the formulas, which the dry run and the check before
// a run have in common.

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "base/text.h"
#include "comm/thread_ranks.h"
#include "layout/memory.h"
#include "layout/update_cost.h"
#include "memory/device_memory.h"
#include "memory/memory_remedies.h"
#include "memory/preflight.h"
#include "model/initialize.h"
#include "ops/cpu_allocator.h"
#include "ops/newton_schulz.h"
#include "ops/testing/on_path.h"
#include "parallel/testing/small_layouts.h"
#include "plan/rank_memory.h"
#include "run/dry_run.h"
#include "train/testing/batches.h"
#include "train/testing/device_case.h"
#include "train/testing/steps.h"
#include "train/train_step.h"

namespace athanor::update_memory_test {
namespace {

// Wide, with few and short sequences: an update of Muon holds more than the activations.
RunConfig wide_case(const Degrees& degrees, const std::string& products = "bfloat16") {
  RunConfig config = small_device_run("olmoe", "bfloat16");
  config.model.hidden_size = 256;
  config.model.intermediate_size = 128;
  config.model.num_hidden_layers = 4;
  config.data.seq_len = 16;
  config.moe.balance = "swipe";
  config.train.global_batch_size = 8;
  config.train.micro_batch_size = 1;
  config.train.num_threads = 1;
  config.optimizer.name = "muon";
  config.optimizer.newton_schulz_dtype = products;
  set_degrees(config, degrees);
  return config;
}

const std::vector<Degrees> kLayouts = {{1, 1, 1, "none"},
                                       {1, 4, 2, "ep_aware"},
                                       {2, 2, 2, "hierarchical"},
                                       {1, 2, 1, "optimizer", 2, 1},
                                       {1, 2, 2, "ep_aware", 1, 2}};

TEST(UpdateMemory, OfTheCheckBeforeARunIsThatOfTheDryRun) {
  for (const Degrees& degrees : kLayouts) {
    for (const char* device : {"cpu", "cuda"}) {
      RunConfig config = wide_case(degrees);
      config.train.device = device;
      const int size = degrees.world();
      const Layout layout(config, size);
      for (int rank = 0; rank < size; ++rank) {
        const MemoryNeed need =
            estimate_train_memory(config, config.data.seq_len, layout, rank, planned_multiplier(config));
        const DryRun dry = dry_run(config, size, rank);
        EXPECT_GT(need.update_bytes, 0);
        EXPECT_EQ(need.update_bytes, dry.update_bytes) << device << ", rank " << rank << " of " << size;
        EXPECT_TRUE(need.update_is_peak());
        EXPECT_EQ(need.passing_bytes(), dry.passing_bytes());
        EXPECT_EQ(need.allocator_bytes, dry.allocator_bytes);
      }
    }
  }
}

TEST(UpdateMemory, IsNothingWithOptimizersThatHoldNoWholeMatrices) {
  for (const char* name : {"adamw", "sgd", "lamb", "sophiag"}) {
    RunConfig config = wide_case({1, 4, 2, "ep_aware"});
    config.optimizer.name = name;
    EXPECT_EQ(estimate_train_memory(config, 16, Layout(config, 4), 0).update_bytes, 0) << name;
  }
}

// The scratch of the iteration's products on tiles, of 256 rows and columns at most, which the formula leaves out.
double product_bytes(const std::string& products) {
  const ProductShape largest{256, 256, 256, false, 2};
  const double element = products == "bfloat16" ? 2 : 4;
  return std::max(product_scratch(largest, {element, element}, 1), product_scratch(largest, {element, 4}, 1));
}

struct RanksCase {
  Degrees degrees;
  const char* products;
};

void expect_update_memory_of_each_rank(const std::vector<RanksCase>& cases, int64_t layers) {
  if (!ops::install_caching_cpu_allocator()) GTEST_SKIP() << "addresses are limited here (ulimit -v)";
  if (ops::test::tile_paths().empty()) GTEST_SKIP() << "this CPU has no tiles, for which the formula is";
  const ops::test::OnPath on(ops::test::tile_paths().front());
  for (const auto& [degrees, products] : cases) {
    RunConfig config = wide_case(degrees, products);
    config.model.num_hidden_layers = layers;
    config.moe.dispatch = "all_to_all";  // otherwise each start tries all kinds
    const int size = degrees.world();
    std::vector<double> taken(static_cast<size_t>(size));
    comm::run_ranks(size, [&](comm::World& world) {
      at::set_num_threads(1);
      Mesh mesh(Layout(config, size), world);
      TrainState state(config, {}, mesh);
      initialize_parameters(config.model, 1, state.model.parameters);
      compute_gradients(state, fixed_batch(config));
      state.model.gatherer.wait_all();
      world.all().barrier();
      const auto before = ops::thread_cpu_memory().in_use_bytes;
      ops::reset_peak_thread_cpu_memory();
      state.optimizer.set.begin({1, 1e-3, 1});
      taken[static_cast<size_t>(world.rank())] =
          static_cast<double>(ops::thread_cpu_memory().peak_in_use_bytes - before);
    });
    for (int rank = 0; rank < size; ++rank) {
      const double found = taken[static_cast<size_t>(rank)],
                   counted = count_update_bytes(config, Layout(config, size), rank, {1});
      // Tensors of counts and indices are small; each block is rounded up to a cache line.
      const double small = 16e3, least = counted, most = counted + product_bytes(products) + small;
      EXPECT_TRUE(least <= found && found <= most) << products << ", rank " << rank << " of " << size << ": " << found
                                                   << " taken, from " << least << " to " << most << " counted";
    }
  }
}

// Each layout in one dtype of the products.
TEST(UpdateMemory, OfEachRankIsThatOfTheFormulaAndTheScratchOfAProduct) {
  std::vector<RanksCase> cases;
  for (size_t i = 0; i < kLayouts.size(); ++i) cases.push_back({kLayouts[i], i % 2 ? "bfloat16" : "float32"});
  expect_update_memory_of_each_rank(cases, /*layers=*/2);
}

TEST(TestAllUpdateMemory, OfEachRankIsThatOfTheFormulaAndTheScratchOfAProduct) {
  std::vector<RanksCase> cases;
  for (const Degrees& degrees : kLayouts)
    for (const char* products : {"bfloat16", "float32"}) cases.push_back({degrees, products});
  expect_update_memory_of_each_rank(cases, /*layers=*/4);
}

// The guarded device counts what it is asked for; an iteration that it plays takes no other memory.
TEST(UpdateMemory, OfTheIterationOnADeviceIsThatOfTheFormula) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 64, 256}, {2, 256, 64}, {1, 96, 96}}) {
      const Tensor stack = guarded::to_device(at::ones(shape));
      guarded::queues().synchronize_all();
      const auto before = guarded::memory().asked();
      guarded::memory().reset_peak();
      ops::orthogonalize(stack, {.dtype = dtype});
      guarded::queues().synchronize_all();
      const auto taken = static_cast<double>(guarded::memory().peak_asked() - before),
                 counted = orthogonal_scratch(shape[0], shape[1], shape[2], {dtype == at::kBFloat16, true});
      EXPECT_NEAR(taken / counted, 1, 0.05) << shape << " " << dtype;
    }
  }
}

std::string refusal_of(const RunConfig& config) {
  std::string said;
  comm::run_ranks(1, [&](comm::World& world) {
    try {
      check_memory(config, world, Layout(config, 1), at::kCPU);
    } catch (const ConfigError& error) {
      said = error.what();
    }
  });
  return said;
}

// The layers of a model this wide fit into the memory of no host.
TEST(UpdateMemory, ThatDoesNotFitIsRefusedBeforeTheFirstStepAndNamed) {
  RunConfig config = wide_case({1, 1, 1, "none"});
  EXPECT_EQ(refusal_of(config), "");
  config.model.hidden_size = int64_t{1} << 20;
  const std::string said = refusal_of(config);
  const MemoryNeed need = memory_of_rank(config, Layout(config, 1), 0);
  EXPECT_EQ(said.find('\n'), said.npos) << said;
  EXPECT_SAYS(said, format_bytes(need.update_bytes) + " of whole matrices in Muon's update");
  EXPECT_SAYS(said, "more ranks share the matrices of Muon's update");
  config.optimizer.name = "adamw";
  EXPECT_EQ(refusal_of(config).find("Muon"), std::string::npos);
}

TEST(UpdateMemory, DecidesOnADeviceWhetherARunFits) {
  const RunConfig config = wide_case({1, 1, 1, "none"});
  const MemoryNeed need = need_of_device(config, {});
  const double without = need.total() - need.update_bytes + need.activation_bytes + need.transient_bytes;
  ASSERT_LT(without, need.total());
  const std::string said = find_lacking_memory(config, {{need.total(), without}}, {"a"}, at::kCUDA);
  EXPECT_SAYS(said, format_bytes(need.update_bytes) + " of whole matrices in Muon's update");
  EXPECT_EQ(said.find("train.micro_batch_size = "), std::string::npos) << said;
}

}  // namespace
}  // namespace athanor::update_memory_test
