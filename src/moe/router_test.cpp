#include "moe/router.h"

#include <gtest/gtest.h>

#include <limits>

#include <cmath>

#include "base/random.h"
#include "moe/testing/routing_numbers.h"
#include "ops/testing/op_testing.h"

namespace athanor::moe::router_test {
namespace {

using ops::test::normal;

constexpr int64_t kSequences = 3, kTokens = 8, kHidden = 16, kExperts = 6, kTopK = 2;

// A logit is a sum of 16 products whose magnitudes sum to less than 64, in one of two orders; a probability's relative
// error is the absolute error of the logits.
constexpr double kRelative = 2 * kHidden * 64 * 0x1p-24;

Weight random_router(uint64_t seed) { return ops::test::weight_of(normal({kExperts, kHidden}, seed)); }
Tensor random_tokens(uint64_t seed) { return normal({kSequences * kTokens, kHidden}, seed); }
RouterOptions options(bool norm_topk_prob = false) { return {.k = kTopK, .norm_topk_prob = norm_topk_prob}; }

TEST(Router, ChosenWeightsAreTheLargestProbabilities) {
  const Weight router = random_router(1);
  const Tensor x = random_tokens(2);
  const Routing routing = route(x, router, options(), kSequences);
  const auto [values, ids] = at::softmax(at::linear(x, router.value), -1).topk(kTopK);
  EXPECT_TRUE(at::equal(routing.expert_ids_TK, ids));
  EXPECT_TRUE(at::allclose(routing.weights_TK, values, kRelative, 0));
}

TEST(Router, RenormalisedWeightsSumToOneAndPlainOnesDoNot) {
  const Weight router = random_router(2);
  const Tensor x = random_tokens(3);
  const Tensor sums = route(x, router, options(true), kSequences).weights_TK.sum(1);
  EXPECT_TRUE(at::allclose(sums, at::ones_like(sums), kRelative, 0));
  EXPECT_LT(route(x, router, options(), kSequences).weights_TK.sum(1).max().item<float>(), 1.0f);
}

TEST(Router, EqualScoresGoToTheLowerIndexAndAreCountedAsFlat) {
  const Weight router{at::zeros({kExperts, kHidden}), at::zeros({kExperts, kHidden})};
  const Routing routing = route(random_tokens(4), router, options(), kSequences);
  EXPECT_TRUE(at::equal(routing.expert_ids_TK, at::arange(kTopK).expand({kSequences * kTokens, kTopK})));
  EXPECT_NEAR(numbers_of(routing).entropy_sum, kSequences * kTokens * std::log(kExperts), 1e-4);
  EXPECT_EQ(numbers_of(routing).flat, kSequences * kTokens);
  EXPECT_EQ(numbers_of(route(random_tokens(4), random_router(3), options(), kSequences)).flat, 0);
}

TEST(Router, CountsAreThoseOfTheChoicesOfEachSequence) {
  const Routing routing = route(random_tokens(5), random_router(3), options(), kSequences);
  for (int64_t b = 0; b < kSequences; ++b) {
    const Tensor ids = routing.expert_ids_TK.narrow(0, b * kTokens, kTokens);
    for (int64_t e = 0; e < kExperts; ++e) {
      EXPECT_EQ(routing.count_BE[b][e].item<float>(), (ids == e).sum().item<float>());
    }
  }
  EXPECT_TRUE(at::equal(routing.load_E, routing.count_BE.sum(0).to(at::kLong)));
}

TEST(Router, SigmoidScoresAreWeighedAsDeepSeekDoes) {
  const Weight router = random_router(6);
  const Tensor x = random_tokens(7);
  RouterOptions o = options(true);
  o.score = RouterScore::kSigmoid;
  o.scaling_factor = 2.5;
  o.bias_E = normal({kExperts}, 8);
  const Routing routing = route(x, router, o, kSequences);
  const Tensor scores = at::sigmoid(at::linear(x, router.value));
  const Tensor ids = std::get<1>((scores + o.bias_E).topk(kTopK));
  EXPECT_TRUE(at::equal(routing.expert_ids_TK, ids));
  const Tensor chosen = scores.gather(1, ids);
  EXPECT_TRUE(at::allclose(routing.weights_TK, chosen / chosen.sum(-1, true) * 2.5, kRelative, 0));
}

TEST(Router, ABiasChangesTheChoiceAndNeverTheWeightOfAnExpert) {
  const Weight router = random_router(9);
  const Tensor x = random_tokens(10);
  RouterOptions o = options();
  o.bias_E = at::zeros({kExperts});
  const Routing plain = route(x, router, o, kSequences);
  o.bias_E[4] = 10;
  const Routing biased = route(x, router, o, kSequences);
  EXPECT_TRUE((biased.expert_ids_TK.select(1, 0) == 4).all().item<bool>());
  const Tensor probs = at::softmax(at::linear(x, router.value), -1);
  EXPECT_TRUE(at::allclose(biased.weights_TK, probs.gather(1, biased.expert_ids_TK), kRelative, 0));
  EXPECT_FALSE(at::equal(plain.expert_ids_TK, biased.expert_ids_TK));
}

TEST(Router, TheBiasGoesUpWhereLoadIsBelowTheMeanAndDownWhereAbove) {
  const Tensor bias = at::zeros({2, 4});
  const Tensor counts = at::tensor({4, 0, 2, 2, 5, 5, 5, 5}, at::kLong).view({2, 4});
  update_router_bias(bias, counts, 0.25);
  EXPECT_TRUE(at::equal(bias, at::tensor({-0.25f, 0.25f, 0.f, 0.f, 0.f, 0.f, 0.f, 0.f}).view({2, 4})));
}

TEST(Router, TheBiasEvensOutALopsidedRouter) {
  const Weight router = random_router(11);
  router.value[0].add_(0.15);  // with the tokens' mean of 1, this adds 2.4 to expert 0's logit beyond its share
  const Tensor x = random_tokens(12) + 1, bias = at::zeros({1, kExperts});
  RouterOptions o = options();
  o.bias_E = bias[0];
  const auto load = [&] { return route(x, router, o, kSequences).load_E; };
  const auto spread = [&] { return (load().max() - load().min()).item<int64_t>(); };
  const int64_t before = spread();
  for (int step = 0; step < 100; ++step) update_router_bias(bias, load().view({1, -1}), 0.01);
  EXPECT_LE(spread(), before / 2);
}

TEST(Router, SavedChoicesAreUsedAndNothingIsDecidedOrCountedAgain) {
  const Weight router = random_router(13);
  const Tensor x = random_tokens(14);
  RouterOptions o = options(true);
  o.noise = {3.0, 1, 0, {}};
  o.balance.kind = Balance::kSwipe;
  o.balance.group_sequences = kSequences;
  const Routing first = route(x, router, o, kSequences);
  const Choices saved = first.choices();
  o.noise.position.step = 1;  // it would choose differently
  EXPECT_FALSE(at::equal(route(x, router, o, kSequences).expert_ids_TK, first.expert_ids_TK));
  const Routing again = route(x, router, o, kSequences, &saved);
  EXPECT_TRUE(at::equal(again.expert_ids_TK, first.expert_ids_TK));
  EXPECT_TRUE(at::equal(again.weights_TK, first.weights_TK));
  EXPECT_TRUE(at::equal(again.prob_sum_BE, first.prob_sum_BE));
  EXPECT_TRUE(at::equal(again.z_sum, first.z_sum));
  EXPECT_FALSE(again.count_BE.defined());
  EXPECT_FALSE(again.load_E.defined());
  EXPECT_FALSE(again.counts.defined());
}

TEST(Router, EvaluationIsPlainTopKWithTheBiasAndCountsNothing) {
  const Weight router = random_router(15);
  const Tensor x = random_tokens(16);
  RouterOptions o = options();
  o.bias_E = normal({kExperts}, 17);
  const Tensor expected = route(x, router, o, kSequences).expert_ids_TK;
  o.training = false;
  o.noise.stddev = 5;
  o.balance.kind = Balance::kForcedUniform;
  const Routing r = route(x, router, o, kSequences);
  EXPECT_TRUE(at::equal(r.expert_ids_TK, expected));
  EXPECT_FALSE(r.load_E.defined() || r.counts.defined() || r.count_BE.defined() || r.prob_sum_BE.defined());
}

TEST(Router, NoiseIsThatOfTheTokenInItsStepHoweverTheBatchIsCut) {
  const Weight router = random_router(18);
  const Tensor x = random_tokens(19);
  RouterOptions o = options();
  o.noise = {2.0, 5, 1, {.step = 7}};
  const Tensor whole = route(x, router, o, kSequences).expert_ids_TK;
  EXPECT_FALSE(at::equal(whole, route(x, router, options(), kSequences).expert_ids_TK));
  std::vector<Tensor> parts;
  for (int64_t b = 0; b < kSequences; ++b) {
    o.noise.position.first_sequence = b;
    parts.push_back(route(x.narrow(0, b * kTokens, kTokens), router, o, 1).expert_ids_TK);
  }
  EXPECT_TRUE(at::equal(at::cat(parts), whole));
  o.noise.position.first_sequence = 0;
  o.noise.layer = 2;
  EXPECT_FALSE(at::equal(whole, route(x, router, o, kSequences).expert_ids_TK));
}

TEST(Router, NoiseWithoutBoundDecidesAloneWhateverTheLogitsAre) {
  const Tensor x = random_tokens(19);
  RouterOptions o = options();
  o.balance = {Balance::kCapacity, 1, 0.8, CapacityOrder::kScore};
  o.noise = {std::numeric_limits<double>::infinity(), 5, 1, {.step = 7}};
  const Routing a = route(x, random_router(18), o, kSequences), b = route(x, random_router(20), o, kSequences);
  EXPECT_TRUE(at::equal(a.expert_ids_TK, b.expert_ids_TK)) << "and what an expert keeps";
  EXPECT_GT(numbers_of(a).dropped, 0);
  EXPECT_FALSE(at::equal(a.weights_TK, b.weights_TK)) << "weights are of the scores";
  o.noise.position.step = 8;
  EXPECT_FALSE(at::equal(a.expert_ids_TK, route(x, random_router(18), o, kSequences).expert_ids_TK));
}

TEST(Router, LargeNoiseChoosesAsNoiseAloneAlsoWhereScoresUnderflow) {
  const Weight router = random_router(18);
  const Tensor x = random_tokens(19);
  for (const auto score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool with_bias : {false, true}) {
      RouterOptions o = options();
      o.score = score;
      o.noise = {std::numeric_limits<double>::infinity(), 5, 1, {.step = 7}};
      const Tensor alone = route(x, router, o, kSequences).expert_ids_TK;
      if (with_bias) o.bias_E = at::zeros({kExperts});
      o.noise.stddev = 1e6;
      EXPECT_TRUE(at::equal(route(x, router, o, kSequences).expert_ids_TK, alone)) << with_bias;
    }
  }
}

TEST(Router, ABiasDecidesBeforeLogitsWhereScoresUnderflow) {
  const Weight router = random_router(18);
  RouterOptions o = options();
  o.noise = {1e6, 5, 1, {.step = 7}};
  o.bias_E = at::zeros({kExperts});
  o.bias_E[4] = 0.5;
  const Tensor ids = route(random_tokens(19), router, o, kSequences).expert_ids_TK;
  EXPECT_TRUE((ids == 4).any(1).all().item<bool>()) << "one score is 1, the others are 0";
}

TEST(Router, SwipeEvensEachGroupAndWeighsAMovedTokenByItsProbabilityForTheExpertItGot) {
  const Weight router = random_router(20);
  router.value[0].add_(1.0);
  const Tensor x = random_tokens(21) + 1;
  RouterOptions o = options();
  o.balance.kind = Balance::kSwipe;
  o.balance.group_sequences = 3;  // 24 tokens · 2 choices / 6 experts = 8
  const Routing r = route(x, router, o, kSequences);
  EXPECT_TRUE(at::equal(r.load_E, at::full({kExperts}, 8, at::kLong)));
  EXPECT_GT(numbers_of(r).moved, 0);
  EXPECT_GT(r.count_BE.sum(0).max().item<float>(), 8);  // losses see the router's own choices
  const Tensor probs = at::softmax(at::linear(x, router.value), -1);
  EXPECT_TRUE(at::allclose(r.weights_TK, probs.gather(1, r.expert_ids_TK), kRelative, 0));
  o.balance.group_sequences = 2;
  EXPECT_THROW(route(x, router, o, kSequences), ConfigError);
}

TEST(Router, ADroppedChoiceHasNoWeightAndTheOthersKeepTheirs) {
  const Weight router = random_router(22);
  router.value[0].add_(1.0);
  const Tensor x = random_tokens(23) + 1;
  RouterOptions o = options(true);
  const Routing whole = route(x, router, o, kSequences);
  o.balance = {Balance::kCapacity, 1, 1.0, CapacityOrder::kScore};
  const Routing r = route(x, router, o, kSequences);
  const Tensor dropped = r.expert_ids_TK < 0;
  EXPECT_GT(numbers_of(r).dropped, 0);
  EXPECT_EQ(dropped.sum().item<int64_t>(), numbers_of(r).dropped);
  EXPECT_TRUE(at::equal(r.weights_TK, whole.weights_TK.masked_fill(dropped, 0)));
  EXPECT_EQ(r.load_E.sum().item<int64_t>(), kSequences * kTokens * kTopK - numbers_of(r).dropped);
}

TEST(Router, TakesNoTokens) {
  for (const bool training : {true, false}) {
    RouterOptions o = options(true);
    o.training = training;
    o.balance.kind = Balance::kSwipe;
    const Routing r = route(at::empty({0, kHidden}), random_router(24), o, 2);
    EXPECT_EQ(r.expert_ids_TK.sizes(), (std::vector<int64_t>{0, kTopK}));
    ASSERT_EQ(r.counts.defined(), training);
    if (training) {
      EXPECT_EQ(numbers_of(r).moved, 0);
    }
  }
}

}  // namespace
}  // namespace athanor::moe::router_test
