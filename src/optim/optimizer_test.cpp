// The interface of optimizers, with three small ones behind it: what ranks own and how they share matrices changes no
// update. Gradients are given, so that they are equal on every layout; tests of whole steps are in
// saves/optimizers_test.cpp.

#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include "optim/testing/optimized_ranks.h"
#include "optim/testing/small_optimizers.h"

namespace athanor::optimizer_test {
namespace {

const char* const kNames[] = {"lamb", "muon", "sophia"};

OptimizerSetup setup_of(const std::string& name, const RunConfig& config) {
  return small::make_setup(name, config.optimizer, [](int64_t, int64_t, int64_t label) { return label; });
}

Whole weights_after(const std::string& name, const Degrees& degrees, const std::string& dtype,
                    const Whole* expected = nullptr,
                    const std::function<double(const BucketEntry&, float)>& bound = {}) {
  return athanor::weights_after([&](const RunConfig& config) { return setup_of(name, config); }, degrees, dtype,
                                expected, bound);
}

// What differs between layouts in kSteps steps. The gradients are equal, and elementwise work has equal bits.
//   All      A master is rounded once for each step, and in bf16 it may be stored an ulp away: 4 units of its size,
//            which is at most 1 and what the steps add.
//   LAMB     The sums of squares are added in fp64 in another order, which moves the ratio by a rounding to fp32 and
//            the mean of three by three more: 8 units of the step, lr times the ratio's share of the norm, below lr · 4
//            (weights of size 1, updates of size 1, a running mean of ratios below 4).
//   Muon     A product of k terms is rounded k times at most: of a matrix of norm 1, an iteration (3 products and sums)
//            adds (3 k + 4) units of its norm, √r at most, and each later one enlarges that by 1.5; both sides do so.
double bound_of(const std::string& name, const BucketEntry& e, float value) {
  double step = 0;
  if (name == "lamb") step = kRate * 4 * 8 * kUnit;
  if (name == "muon" && e.global_shape.size() > 1) {
    const auto last = std::ssize(e.global_shape) - 1;
    const auto columns = static_cast<double>(e.global_shape[static_cast<size_t>(last)]),
               rows = static_cast<double>(e.global_shape[static_cast<size_t>(last - 1)]);
    const double growth = (std::pow(1.5, small::Muon::kIterations) - 1) / 0.5;
    step = kRate * 2 * growth * (3 * std::max(rows, columns) + 4) * kUnit * std::sqrt(std::min(rows, columns));
  }
  return kSteps * (4 * kUnit * (1 + std::abs(static_cast<double>(value))) + step);
}

TEST(Optimizers, OfOtherNeedsUpdateAsOneRankDoesUnderEverySharding) {
  for (const char* name : kNames) {
    const Whole expected = weights_after(name, kOne, "float32");
    for (const auto& [parameter, values] : expected) {
      for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << name << " " << parameter;
    }
    const auto bound = [&](const BucketEntry& e, float value) { return bound_of(name, e, value); };
    for (const Degrees& degrees : kLayouts) {
      SCOPED_TRACE(fmt::format("{}, {}", name, degrees.text()));
      const Whole whole = weights_after(name, degrees, "float32", &expected, bound);
      for (const auto& [parameter, values] : whole) {
        for (const float value : values) ASSERT_FALSE(std::isnan(value)) << parameter << " is not owned whole";
      }
    }
  }
}

TEST(Optimizers, OfOtherNeedsUpdateAsOneRankDoesWhenTheMasterIsKeptInHalves) {
  for (const char* name : kNames) {
    const Whole expected = weights_after(name, kOne, "bfloat16");
    const auto bound = [&](const BucketEntry& e, float value) { return bound_of(name, e, value); };
    weights_after(name, kLayouts[3], "bfloat16", &expected, bound);
    weights_after(name, kLayouts.back(), "bfloat16", &expected, bound);
  }
}

// The declarations give the bytes, exactly where the table of buckets is known and up to padding where it is not.
TEST(Optimizers, HoldTheBytesThatTheirDeclarationsGive) {
  for (const char* name : kNames) {
    for (const Degrees& degrees : kLayouts) {
      const RunConfig config = config_of(degrees, "float32");
      comm::run_ranks(degrees.world(), [&](comm::World& world) {
        RankState rank(config, world, setup_of(name, config));
        const int64_t held = rank.optimizers.state_bytes();
        const OptimizerPlan& plan = rank.optimizers.plan();
        const int64_t computed =
            count_optimizer_bytes(rank.store.table(), rank.store.flat_size(), rank.store.owned(), plan);
        if (held != computed) throw std::runtime_error(fmt::format("{} bytes held, {} computed", held, computed));
      });
    }
  }
}

TEST(TensorSums, CountEveryElementOfTheModelOnce) {
  for (const Degrees& degrees : kLayouts) {
    SCOPED_TRACE(degrees.text());
    const RunConfig config = config_of(degrees, "float32");
    comm::run_ranks(degrees.world(), [&](comm::World& world) {
      const Mesh mesh(Layout(config, world.size()), world);
      const ShardPlan plan(mesh, value_of<ShardingKind>(degrees.sharding));
      const ParameterStore store(
          make_bucket_entries(held_parameters(config.model, config.parallelism, mesh.layout(), mesh.rank())),
          at::kFloat, ParameterStore::Use::kTraining, plan.sharding(1000));
      const TensorSums sums(config.model, store, plan);
      const Tensor counts = at::zeros({sums.num_matrices(), 1}, at::kDouble);
      for (const Bucket& bucket : store.buckets()) {
        sums.for_each_matrix(sums.counted(bucket), [&](const BucketEntry&, int64_t matrix, FlatRange piece) {
          counts[matrix][0] += static_cast<double>(piece.size());
        });
      }
      sums.add_up(counts);
      int64_t matrix = 0;
      for (const ParameterSpec& spec : make_inventory(config.model)) {
        const auto each = static_cast<double>(spec.num_elements() / count_matrices(spec));
        for (int64_t m = 0; m < count_matrices(spec); ++m, ++matrix) {
          if (counts[matrix][0].item<double>() != each)
            throw std::runtime_error(fmt::format("{}: {} of {}", spec.name, counts[matrix][0].item<double>(), each));
        }
      }
    });
  }
}

std::vector<BucketEntry> three_parameters() {
  return {{.name = "a.norm.weight",
           .replication = {},
           .global_shape = {5},
           .offset = {0},
           .extent = {5},
           .role = Role::kNorm},
          {.name = "b.weight",
           .replication = {},
           .global_shape = {7, 3},
           .offset = {0, 0},
           .extent = {7, 3},
           .role = Role::kQuery},
          {.name = "c.weight",
           .replication = {},
           .global_shape = {70},
           .offset = {0},
           .extent = {70},
           .role = Role::kRouter}};
}

TEST(ParameterGroups, OfRolesAndOfNamesHaveTheirOwnRateDecayAndOptimizer) {
  ParameterStore store(three_parameters(), at::kFloat, ParameterStore::Use::kTraining);
  for (const auto& e : store.table())
    store.fill_master(e.name, [](int64_t, std::span<float> out) { std::ranges::fill(out, 1.0f); });
  const ParameterGroup norms{.patterns = {"*norm.weight"}, .lr_scale = 0.5};
  const ParameterGroup routers{.roles = {Role::kRouter}, .optimizer = "sophia"};
  const ParameterGroup rest{.weight_decay = 0.5};
  OptimizerConfig config;
  OptimizerSetup setup = small::make_setup("sophia", config, {});
  setup.plan = {{norms, routers, rest}, {small::Sophia::declare(), declare_optimizer(config.name)}};
  ModelConfig model;
  RunConfig run;
  run.model.num_hidden_layers = 1;
  const OneRank alone(run);
  const ShardPlan plan(alone.mesh, ShardingKind::kNone);
  OptimizerSet optimizers(std::move(setup), model, store, plan);
  store.grad().fill_(1);
  const Update update{1, 0.1, 1};
  optimizers.begin(update);
  optimizers.apply(update, {0, store.flat_size()});
  const auto value = [&](const char* name) { return store.master_copy(name).min().item<float>(); };
  EXPECT_FLOAT_EQ(value("a.norm.weight"), 1 - 0.05f);                     // AdamW's first step is lr · sign
  EXPECT_FLOAT_EQ(value("b.weight"), 1 - 0.05f - 0.1f);                   // and the decay
  EXPECT_FLOAT_EQ(value("c.weight"), 1 - 0.1f);                           // Sophia's is clipped at lr
  EXPECT_EQ(optimizers.optimizers()[0]->parameters().state_size(), 128);  // c alone, and its padding
  EXPECT_EQ(optimizers.optimizers()[1]->parameters().state_size(), 128);  // a and b, 64 each
}

TEST(ParameterGroups, TwoOptimizersWithASecondBackwardAreRefused) {
  ParameterStore store(three_parameters(), at::kFloat, ParameterStore::Use::kTraining);
  const RunConfig run;
  const OneRank alone(run);
  const ShardPlan plan(alone.mesh, ShardingKind::kNone);
  OptimizerSetup setup = small::make_setup("sophia", {}, {});
  setup.plan.optimizers.push_back({.name = "another", .state = {}, .needs = {.second_backward = true}});
  EXPECT_THROW(OptimizerSet(std::move(setup), run.model, store, plan), ConfigError);
}

}  // namespace
}  // namespace athanor::optimizer_test
