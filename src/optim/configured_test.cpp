// The optimizers that a configuration can name, on every layout: sharding and homes change no bit, where that is
// promised. Gradients are given (optim/testing/optimized_ranks.h); whole steps are in saves/optimizers_test.cpp.

#include <gtest/gtest.h>

#include "optim/lamb.h"
#include "optim/muon.h"
#include "optim/testing/optimized_ranks.h"

namespace athanor::configured_test {
namespace {

RunConfig configured(RunConfig config, const std::string& name) {
  config.optimizer.name = name;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.hessian_interval = 2;
  config.optimizer.no_weight_decay = {"*norm.weight"};
  return config;
}

std::function<OptimizerSetup(const RunConfig&)> setup_of(const std::string& name) {
  return [name](const RunConfig& config) { return configured_optimizers(configured(config, name).optimizer); };
}

// Elementwise work, and matrices that are computed whole, have the same bits. LAMB's sums of squares are added in fp64
// in another order, which moves the ratio by a rounding to fp32 on either side: the step, at most lr · 4 (weights and
// directions of size 1, ratios below 4), by two units, and the master by the rounding of its difference.
double bound_of(const std::string& name, float value) {
  return name == "lamb" ? kSteps * kUnit * (2 * kRate * 4 + 4 * (1 + std::abs(static_cast<double>(value)))) : 0;
}

constexpr const char* kNames[] = {"adamw", "sgd", "lamb", "sophiag", "muon"};
constexpr const char* kTypes[] = {"float32", "bfloat16"};

// @param share  2: a layout has one of the two types, another optimizer has it with the other; 1: it has both
void expect_updates_of_one_rank(size_t share) {
  for (size_t n = 0; n < std::size(kNames); ++n) {
    const char* name = kNames[n];
    for (size_t t = 0; t < std::size(kTypes); ++t) {
      const Whole expected = weights_after(setup_of(name), kOne, kTypes[t]);
      for (const auto& [parameter, values] : expected)
        for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << name << " " << parameter;
      for (size_t l = 0; l < kLayouts.size(); ++l) {
        if ((n + t + l) % share != 0) continue;
        SCOPED_TRACE(fmt::format("{}, {}, {}", name, kTypes[t], kLayouts[l].text()));
        const Whole whole = weights_after(setup_of(name), kLayouts[l], kTypes[t], &expected,
                                          [&](const BucketEntry&, float value) { return bound_of(name, value); });
        for (const auto& [parameter, values] : whole)
          for (const float value : values) ASSERT_FALSE(std::isnan(value)) << parameter << " is not owned whole";
      }
    }
  }
}

// Every optimizer on every layout, with parameters of one of the two types.
TEST(ConfiguredOptimizers, UpdateAsOneRankDoesUnderEverySharding) { expect_updates_of_one_rank(2); }

TEST(TestAllConfiguredOptimizers, UpdateAsOneRankDoesUnderEveryShardingInBothTypes) { expect_updates_of_one_rank(1); }

TEST(ConfiguredOptimizers, HoldTheBytesThatTheirDeclarationsGive) {
  for (const char* name : {"sgd", "lamb", "sophiag", "muon"}) {
    for (const Degrees& degrees : kLayouts) {
      const RunConfig config = config_of(degrees, "float32");
      comm::run_ranks(degrees.world(), [&](comm::World& world) {
        RankState rank(config, world, setup_of(name)(config));
        const int64_t held = rank.optimizers.state_bytes(),
                      computed = count_optimizer_bytes(rank.store.table(), rank.store.flat_size(), rank.store.owned(),
                                                       rank.optimizers.plan());
        if (held != computed) throw std::runtime_error(fmt::format("{} bytes held, {} computed", held, computed));
      });
    }
  }
}

// LAMB's ratio is of each expert, and of the whole matrix wherever its elements are.
TEST(Lamb, RatiosAreThoseOfNormsOfWholeMatrices) {
  const auto ratios_on = [](const Degrees& degrees) {
    const RunConfig config = config_of(degrees, "float32");
    std::vector<float> ratios;
    std::mutex mutex;
    comm::run_ranks(degrees.world(), [&](comm::World& world) {
      at::set_num_threads(1);
      RankState rank(config, world, setup_of("lamb")(config));
      rank.step(1);
      const Tensor found = dynamic_cast<const Lamb&>(*rank.optimizers.optimizers()[0]).trust_ratios();
      const std::lock_guard lock(mutex);
      const std::vector<float> own(found.data_ptr<float>(), found.data_ptr<float>() + found.numel());
      if (ratios.empty()) ratios = own;
      if (ratios != own) throw std::runtime_error("ranks have other ratios");
    });
    return ratios;
  };
  const std::vector<float> one = ratios_on(kOne);
  int64_t matrices = 0;
  for (const ParameterSpec& spec : make_inventory(config_of(kOne, "float32").model)) matrices += count_matrices(spec);
  ASSERT_EQ(std::ssize(one), matrices);
  EXPECT_GT(*std::ranges::max_element(one) / *std::ranges::min_element(one), 1.01f);
  for (const Degrees& degrees : kLayouts) {
    const std::vector<float> other = ratios_on(degrees);
    ASSERT_EQ(other.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(other[i], one[i], 2 * kUnit * one[i]) << degrees.text() << " " << i;
  }
}

// With tied embeddings the last norm is alone in the last bucket, and alone has no decay there: of two ranks that share
// the bucket, one owns padding.
TEST(Lamb, ARankThatOwnsOnlyPaddingOfSomeParametersUpdatesWithTheOthers) {
  const auto weights_on = [](const Degrees& degrees, const Whole* expected) {
    RunConfig config = config_of(degrees, "float32");
    config.model.tie_word_embeddings = true;
    Whole whole = empty_model(config.model);
    std::mutex mutex;
    comm::run_ranks(degrees.world(), [&](comm::World& world) {
      at::set_num_threads(1);
      RankState rank(config, world, setup_of("lamb")(config));
      for (int step = 1; step <= kSteps; ++step) rank.step(step);
      const std::lock_guard lock(mutex);
      rank.add_to(whole, expected, [](const BucketEntry&, float value) { return bound_of("lamb", value); });
    });
    return whole;
  };
  const Whole one = weights_on(kOne, nullptr);
  for (const Degrees& degrees : {Degrees{1, 2, 1, "ep_aware"}, {1, 4, 2, "optimizer"}, {2, 2, 2, "hierarchical"}})
    EXPECT_NO_THROW(weights_on(degrees, &one)) << degrees.text();
}

TEST(Muon, ScaleIsTheRuleOfItsName) {
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::kKellerJordan, 400, 100), 2);
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::kKellerJordan, 100, 400), 1);
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::kMoonshot, 100, 400), 4);
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::kMoonshot, 400, 100), 4);
}

// At most four collectives of an update, whatever the number of matrices.
TEST(Muon, AnUpdateMakesAtMostFourCollectives) {
  for (const Degrees& degrees : kLayouts) {
    const RunConfig config = config_of(degrees, "float32");
    comm::run_ranks(degrees.world(), [&](comm::World& world) {
      RankState rank(config, world, setup_of("muon")(config));
      rank.step(1);
      const int64_t before = rank.count_collectives();
      rank.optimizers.begin({2, kRate, 0.5});
      const int64_t made = rank.count_collectives() - before;
      if (made > 4) throw std::runtime_error(fmt::format("{} collectives", made));
    });
  }
}

}  // namespace
}  // namespace athanor::configured_test
