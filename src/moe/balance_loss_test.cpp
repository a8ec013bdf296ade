#include <gtest/gtest.h>

#include "moe/balance_loss.h"

namespace athanor::moe::balance_loss_test {
namespace {

constexpr int64_t kSequences = 3, kTokens = 8, kHidden = 16, kExperts = 6, kTopK = 2;

Weight random_router(int64_t seed) {
  at::manual_seed(static_cast<uint64_t>(seed));
  return {at::randn({kExperts, kHidden}), at::zeros({kExperts, kHidden})};
}

Tensor random_tokens(int64_t num_sequences = kSequences) { return at::randn({num_sequences * kTokens, kHidden}); }

RouterOptions options() { return {.k = kTopK}; }

// Returns a routing in which every expert gets the same number of choices and the same probability.
Routing balanced() {
  Routing r;
  r.count_BE = at::full({kSequences, kExperts}, static_cast<double>(kTokens * kTopK) / kExperts);
  r.prob_sum_BE = at::full({kSequences, kExperts}, static_cast<double>(kTokens) / kExperts);
  return r;
}

TEST(BalanceLoss, IsTopKForEachLayerAndSequenceAtPerfectBalance) {
  const std::vector<Routing> layers = {balanced(), balanced()};
  const Tensor share = at::full({2, kExperts}, static_cast<double>(kTopK) / kExperts);
  for (const AuxScope scope : {AuxScope::kSequence, AuxScope::kGlobal, AuxScope::kTransformers}) {
    EXPECT_NEAR(balance_loss_sum(scope, layers, kTokens, share).item<double>(), 2.0 * kSequences * kTopK, 1e-5);
  }
}

TEST(BalanceLoss, OfASequenceDoesNotDependOnItsMicrobatch) {
  const Weight router = random_router(4);
  const Tensor x = random_tokens(2);
  const auto loss = [&](const Tensor& tokens, int64_t sequences) {
    return balance_loss_sum(AuxScope::kSequence, {route(tokens, router, options(), sequences)}, kTokens, {})
        .item<double>();
  };
  const double together = loss(x, 2);
  const double apart = loss(x.narrow(0, 0, kTokens), 1) + loss(x.narrow(0, kTokens, kTokens), 1);
  // The bound is for two sums of at most kTokens · kExperts products of fp32, each below 1.
  EXPECT_NEAR(together, apart, kTokens * kExperts * std::ldexp(1.0, -23));
}

TEST(BalanceLoss, OfTransformersDoesDependOnItsMicrobatch) {
  const Weight router = random_router(5);
  const Tensor x = random_tokens(2);
  const auto loss = [&](const Tensor& tokens, int64_t sequences) {
    return balance_loss_sum(AuxScope::kTransformers, {route(tokens, router, options(), sequences)}, kTokens, {})
        .item<double>();
  };
  EXPECT_GT(std::abs(loss(x, 2) - loss(x.narrow(0, 0, kTokens), 1) - loss(x.narrow(0, kTokens, kTokens), 1)), 1e-3);
}

TEST(BalanceLoss, IsLargestWhenAllTokensGoToOneExpert) {
  Routing r;
  r.count_BE = at::zeros({1, kExperts});
  r.prob_sum_BE = at::zeros({1, kExperts});
  r.count_BE[0][2] = kTokens;
  r.prob_sum_BE[0][2] = kTokens;
  EXPECT_NEAR(balance_loss_sum(AuxScope::kSequence, {r}, kTokens, {}).item<double>(), kExperts, 1e-6);
}

}  // namespace
}  // namespace athanor::moe::balance_loss_test
