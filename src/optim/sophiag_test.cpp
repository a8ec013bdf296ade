#include "optim/sophiag.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "optim/optimizer_set.h"
#include "parallel/testing/small_layouts.h"

namespace athanor::sophiag_test {
namespace {

RunConfig sophiag(int64_t interval) {
  RunConfig config = small_run({1, 1, 1, "none"}, 62, "float32");
  config.optimizer.name = "sophiag";
  config.optimizer.hessian_interval = interval;
  return config;
}

// One rank without a model, whose gradients are given.
class Rank {
 public:
  explicit Rank(const RunConfig& config)
      : alone_(config), plan_(alone_.mesh, ShardingKind::kNone),
        store_(make_bucket_entries(held_parameters(config.model, config.parallelism, alone_.mesh.layout(), 0)),
               at::kFloat, ParameterStore::Use::kTraining, plan_.sharding(1000)),
        optimizers(configured_optimizers(config.optimizer), config.model, store_, plan_) {}

  bool learns_at(int64_t step) const { return optimizers.second_backward(step).has_value(); }
  void learn(int64_t step, float grad) {
    store_.grad().fill_(grad);
    optimizers.learn_from_second(step, 1000);
    store_.grad().zero_();
  }
  const Tensor& grad() const { return store_.grad(); }
  Tensor hessian() const { return optimizers.optimizers()[0]->state("hessian"); }

 private:
  OneRank alone_;
  ShardPlan plan_;
  ParameterStore store_;

 public:
  OptimizerSet optimizers;
};

constexpr const char* kOutput = "lm_head.weight";

TEST(SophiaG, TheFirstUpdateOfFreshStateEstimatesTheHessian) {
  Rank rank(sophiag(10));
  EXPECT_TRUE(rank.learns_at(1) && !rank.learns_at(2) && rank.learns_at(11));
  rank.optimizers.set_fresh_since({{kOutput, 12}});
  EXPECT_TRUE(rank.learns_at(13)) << "the state of one parameter was zero after step 12";
  EXPECT_TRUE(!rank.learns_at(12) && !rank.learns_at(14) && rank.learns_at(21));
}

TEST(SophiaG, FreshStateOfAnotherOptimizersParameterIsNoReasonToEstimate) {
  RunConfig config = sophiag(10);
  config.optimizer.groups = {{.match = {"output"}, .name = "adamw"}};
  Rank rank(config);
  rank.optimizers.set_fresh_since({{kOutput, 12}});
  EXPECT_FALSE(rank.learns_at(13));
}

TEST(SophiaG, AnEstimateCountsFromTheUpdateOnAndNotIfItsStepIsRefused) {
  Rank rank(sophiag(10));
  rank.learn(11, 1.0f);
  EXPECT_EQ(rank.hessian().count_nonzero().item<int64_t>(), 0) << "before the update";
  rank.learn(11, 0.5f);  // the next batch, after a step that was refused on the host
  rank.optimizers.begin({11, 0.1});
  const float rest = 1.0f - static_cast<float>(sophiag(10).optimizer.betas[1]);
  EXPECT_TRUE(at::allclose(rank.hessian(), at::full_like(rank.hessian(), rest * 1000 * 0.25f)));
  const Tensor before = rank.hessian().clone();
  rank.learn(21, 1.0f);
  rank.optimizers.begin({22, 0.1});
  EXPECT_TRUE(at::equal(rank.hessian(), before)) << "an estimate of another step";
  const float refused = std::numeric_limits<float>::quiet_NaN();
  rank.learn(31, 1.0f);
  rank.optimizers.begin({31, 0.1, 1, {at::full({1}, refused), {}}});
  EXPECT_TRUE(at::equal(rank.hessian(), before)) << "refused on the device";
  rank.learn(31, 1.0f);
  rank.optimizers.begin({31, 0.1, 1, {at::ones({1}), {}}});
  EXPECT_FALSE(at::equal(rank.hessian(), before)) << "applied on the device";
}

TEST(SophiaG, AnElementWhoseEstimateIsNotFiniteKeepsItsHessian) {
  Rank rank(sophiag(10));
  rank.learn(1, 1.0f);
  rank.optimizers.begin({1, 0.1});
  const Tensor before = rank.hessian().clone();
  rank.grad().fill_(2.0f);
  rank.grad()[0] = std::numeric_limits<float>::infinity();
  rank.grad()[1] = std::numeric_limits<float>::quiet_NaN();
  rank.optimizers.learn_from_second(11, 1000);
  rank.optimizers.begin({11, 0.1});
  EXPECT_TRUE(at::equal(rank.hessian().narrow(0, 0, 2), before.narrow(0, 0, 2)));
  EXPECT_TRUE(rank.hessian().gt(before).narrow(0, 2, before.size(0) - 2).sum().item<int64_t>() > before.size(0) / 2);
}

}  // namespace
}  // namespace athanor::sophiag_test
