#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/sum_of_squares.h"
#include "optim/adamw.h"
#include "optim/gradient_norm.h"
#include "optim/schedule.h"

namespace athanor::optim_test {
namespace {

OptimizerConfig config(const std::string& schedule) {
  OptimizerConfig c;
  c.schedule = schedule;
  c.lr = 1.0;
  c.min_lr = 0.1;
  c.warmup_steps = 10;
  return c;
}

TEST(Schedule, WarmUpIsLinearAndReachesLrAtItsLastStep) {
  for (const char* name : {"cosine", "linear", "constant", "wsd", "inverse_sqrt"}) {
    EXPECT_DOUBLE_EQ(learning_rate(config(name), {1}, 100), 0.1) << name;
    EXPECT_DOUBLE_EQ(learning_rate(config(name), {10}, 100), 1.0) << name;
  }
}

TEST(Schedule, EndsWhereEachSaysItEnds) {
  EXPECT_DOUBLE_EQ(learning_rate(config("cosine"), {100}, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config("linear"), {100}, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config("wsd"), {100}, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config("wsd"), {90}, 100), 1.0);  // the last tenth decays
  EXPECT_DOUBLE_EQ(learning_rate(config("constant"), {100}, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(config("inverse_sqrt"), {40}, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(config("cosine"), {55}, 100), 0.55);  // half-way
}

TEST(Schedule, NoWarmUpStartsAtTheTop) {
  auto c = config("cosine");
  c.warmup_steps = 0;
  EXPECT_LT(learning_rate(c, {1}, 1000), 1.0);
  EXPECT_GT(learning_rate(c, {1}, 1000), 0.999);
}

TEST(Clip, ScalesDownToTheNormAndOnlyAfterWarmUpIfAsked) {
  auto c = config("cosine");
  c.max_grad_norm = 1.0;
  EXPECT_NEAR(clip_scale(c, 4.0, false), 0.25, 1e-6);
  EXPECT_EQ(clip_scale(c, 0.5, false), 1.0);
  c.clip_after_warmup = true;
  EXPECT_EQ(clip_scale(c, 4.0, true), 1.0);
  EXPECT_NEAR(clip_scale(c, 4.0, false), 0.25, 1e-6);
  c.max_grad_norm = 0;
  EXPECT_EQ(clip_scale(c, 4.0, false), 1.0);
}

TEST(Clip, NormDoesNotDependOnThreads) {
  const Tensor grad = at::sin(at::arange(1000003, at::kFloat));
  at::set_num_threads(1);
  const double one = ops::sum_of_squares(grad).sqrt().item<double>();
  at::set_num_threads(2);
  EXPECT_EQ(one, ops::sum_of_squares(grad).sqrt().item<double>());
  EXPECT_NEAR(one, grad.to(at::kDouble).norm().item<double>(), 1e-6 * one);
}

std::vector<BucketEntry> two_parameters() {
  return {{"a.norm.weight", Replication::kDense, {5}, {0}, {5}},
          {"b.weight", Replication::kDense, {7, 3}, {0, 0}, {7, 3}}};
}

void fill_with_ones(ParameterStore& parameters) {
  for (const auto& entry : parameters.table()) {
    parameters.fill_master(entry.name, [](int64_t, std::span<float> out) { std::ranges::fill(out, 1.0f); });
  }
}

TEST(AdamW, DecaysAllParametersButThosePatternsName) {
  ParameterStore parameters(two_parameters(), at::kFloat, ParameterStore::Use::kTraining);
  fill_with_ones(parameters);
  OptimizerConfig c;
  c.weight_decay = 0.5;
  c.no_weight_decay = {"*norm.weight"};
  AdamW optimizer(c, parameters);
  optimizer.apply({1, 0.1, 1.0});  // gradients are zero: only decay moves anything
  EXPECT_EQ(parameters.master_copy("a.norm.weight").min().item<float>(), 1.0f);
  EXPECT_FLOAT_EQ(parameters.master_copy("b.weight").max().item<float>(), 0.95f);
}

TEST(AdamW, APatternMayNameWhatAnotherRankHolds) {
  ParameterStore parameters(two_parameters(), at::kFloat, ParameterStore::Use::kTraining);
  OptimizerConfig c;
  c.no_weight_decay = {"*layernorm*"};
  EXPECT_NO_THROW(AdamW(c, parameters));
}

TEST(AdamW, TheFirstUpdateAfterFreshMomentsIsThatOfAFreshRunAndOthersGoOn) {
  OptimizerConfig c;
  c.weight_decay = 0;
  c.betas = {0.9, 0.999};
  constexpr double kRate = 0.5;
  const auto after_one = [&](int64_t step, const std::map<std::string, int64_t>& fresh_since) {
    ParameterStore parameters(two_parameters(), at::kFloat, ParameterStore::Use::kTraining);
    AdamW optimizer(c, parameters);
    optimizer.set_fresh_since(fresh_since);
    parameters.grad().fill_(-3);
    optimizer.apply({step, kRate, 1.0});
    return std::pair(parameters.master_copy("a.norm.weight"), parameters.master_copy("b.weight"));
  };
  const auto fresh = after_one(1, {});
  EXPECT_FLOAT_EQ(fresh.first.min().item<float>(), kRate);  // lr · sign(gradient)
  const auto both = after_one(20'001, {{"a.norm.weight", 20'000}, {"b.weight", 20'000}, {"elsewhere", 7}});
  EXPECT_TRUE(at::equal(both.first, fresh.first));
  EXPECT_TRUE(at::equal(both.second, fresh.second));
  const auto one = after_one(20'001, {{"b.weight", 20'000}});
  EXPECT_TRUE(at::equal(one.second, fresh.second));
  // Zero moments that claim to hold 20,000 updates: (1 − β1)/√(1 − β2) of lr. 1 − 0.999^20001 is 2e-9 from 1.
  EXPECT_NEAR(one.first.min().item<float>(), kRate * 0.1 / std::sqrt(0.001), 1e-5);
}

TEST(AdamW, TheFirstUpdatesAfterFreshMomentsAreThoseOfTorch) {
  // torch.optim.AdamW([w], lr=0.01, betas=(0.9, 0.95), weight_decay=0.1), w = 1, gradients 0.5, -0.25, 1, in float64.
  constexpr double kTorch[3] = {0.9890000002, 0.9853273057873828, 0.9778545292435392};
  OptimizerConfig c;
  c.weight_decay = 0.1;
  c.betas = {0.9, 0.95};
  c.eps = 1e-8;
  ParameterStore parameters(two_parameters(), at::kFloat, ParameterStore::Use::kTraining);
  fill_with_ones(parameters);
  AdamW optimizer(c, parameters);
  optimizer.set_fresh_since({{"a.norm.weight", 20'000}, {"b.weight", 20'000}});
  int64_t step = 20'000;
  for (const auto& [gradient, expected] : {std::pair{0.5, kTorch[0]}, {-0.25, kTorch[1]}, {1.0, kTorch[2]}}) {
    parameters.grad().fill_(gradient);
    optimizer.apply({++step, 0.01, 1.0});
    EXPECT_NEAR(parameters.master_copy("b.weight").max().item<float>(), expected, 1e-6);  // a dozen roundings near 1
  }
}

TEST(AdamW, UpdatesBelowHalfAnUlpOfBf16AreKeptInTheMaster) {
  ParameterStore parameters(two_parameters(), at::kBFloat16, ParameterStore::Use::kTraining);
  fill_with_ones(parameters);
  OptimizerConfig c;
  c.weight_decay = 0;
  AdamW optimizer(c, parameters);
  int64_t changed = 0;
  for (int64_t step = 1; step <= 8;
       ++step) {  // eight steps of 1/1024: together they cross the half ulp 1/512 of bf16 below 1
    parameters.grad().fill_(1);
    changed += optimizer.apply({step, 1.0 / 1024, 1.0});
  }
  EXPECT_GT(changed, 0);
  EXPECT_NEAR(parameters.master_copy("b.weight").max().item<float>(), 1 - 8.0 / 1024, 1e-5);
  EXPECT_EQ(parameters.grad().abs().max().item<float>(), 0.0f);
}

}  // namespace
}  // namespace athanor::optim_test
