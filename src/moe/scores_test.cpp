#include "moe/scores.h"

#include <gtest/gtest.h>

#include "ops/error_bound.h"
#include "ops/testing/op_testing.h"

namespace athanor::moe::scores_test {
namespace {

using kernels::RouterRule;
using ops::test::normal;

constexpr int64_t kSequences = 2, kTokens = 70, kExperts = 21, kTopK = 4;  // more than a piece; more than the lanes

// Choices of different experts; one in five is dropped.
Tensor some_ids(uint64_t seed) {
  const Tensor ids = std::get<1>(normal({kSequences * kTokens, kExperts}, seed).topk(kTopK)).contiguous();
  return at::where(normal(ids.sizes(), seed + 1) > 0.84, ids.bitwise_not(), ids).contiguous();
}

struct Gradients {
  Weighed out;
  Tensor dlogits;
};

// Forward and backward of `f(logits)` with the same directions for every form.
template <class F>
Gradients run(F f, const Tensor& logits) {
  const Tensor leaf = logits.detach().clone().requires_grad_();
  const Weighed out = f(leaf);
  const auto like = [](const Tensor& x, uint64_t seed) { return normal(x.sizes(), seed).to(x.scalar_type()); };
  torch::autograd::backward({out.weights_TK, out.prob_sum_BE, out.z_sum},
                            {like(out.weights_TK, 50), like(out.prob_sum_BE, 51), like(out.z_sum, 52) * 0.01});
  return {out, leaf.grad()};
}

double entropy_sum(const Weighed& out) { return out.numbers.narrow(0, 1, 1).view(at::kDouble).item<double>(); }

void expect_close(const Tensor& actual, const Tensor& expected, double norm, int64_t terms, const std::string& what) {
  ops::test::expect_within(actual, expected, at::full_like(expected, ops::error_bound(norm, at::kFloat, terms)), what);
}

TEST(RouterScores, AgreeWithTheirPortableFormForwardAndBackward) {
  // An exponential of x has an error of |x| roundoffs; logits differ by less than 16. Then come sums over the experts.
  constexpr int64_t kTerms = kExperts + 32;
  for (const at::ScalarType dtype : ops::test::kComputeTypes) {
    for (const bool sigmoid : {false, true}) {
      for (const bool norm : {false, true}) {
        SCOPED_TRACE(testing::Message() << ops::test::name_of(dtype) << " sigmoid " << sigmoid << " norm " << norm);
        const RouterRule rule{kExperts, kTopK, sigmoid, norm, 2.5f};
        const Tensor logits = (normal({kSequences * kTokens, kExperts}, 1) * 2).to(dtype), ids = some_ids(2);
        const auto ours =
            run([&](const Tensor& l) { return weigh(l, compute_scores(l, rule), ids, kSequences, rule); }, logits);
        const auto exact =
            run([&](const Tensor& l) { return portable::weigh(l, ids, kSequences, rule); }, logits.to(at::kDouble));
        expect_close(ours.out.weights_TK, exact.out.weights_TK, 2.5, kTerms, "weights");
        expect_close(ours.out.prob_sum_BE, exact.out.prob_sum_BE, kTokens, kTerms + kTokens, "prob_sum");
        const double z = exact.out.z_sum.item<double>();
        EXPECT_NEAR(ours.out.z_sum.item<double>(), z, ops::error_bound(z, at::kFloat, kTerms));
        EXPECT_NEAR(entropy_sum(ours.out), entropy_sum(exact.out),
                    ops::error_bound(kSequences * kTokens * 16.0, at::kFloat, kTerms));
        EXPECT_EQ(ours.out.numbers[0].item<int64_t>(), 0);
        // Directions are below 5. A sum of k chosen scores is above 1/500 here, and the gradient through it is the
        // largest.
        const double scale = exact.dlogits.abs().max().item<double>() + 5 * 2.5 * (norm ? 2 : 1);
        const double stored = dtype == at::kBFloat16 ? scale * kernels::kRoundoffBf16 : 0;
        ops::test::expect_within(ours.dlogits, exact.dlogits,
                                 at::full_like(exact.dlogits, ops::error_bound(scale * 4, at::kFloat, kTerms) + stored),
                                 "dlogits");
      }
    }
  }
}

TEST(RouterScores, GradientsOfThePortableFormAreFiniteDifferences) {
  constexpr double kStep = 1e-5;
  const RouterRule rule{kExperts, kTopK, true, true, 1.5f};
  const Tensor logits = normal({kSequences * kTokens, kExperts}, 3, at::kDouble), ids = some_ids(4);
  const auto f = [&](const Tensor& l) { return portable::weigh(l, ids, kSequences, rule); };
  const auto objective = [&](const Tensor& l) {
    const Weighed w = f(l);
    const auto dot = [](const Tensor& x, uint64_t seed) { return (x * normal(x.sizes(), seed).to(at::kDouble)).sum(); };
    return (dot(w.weights_TK, 50) + dot(w.prob_sum_BE, 51) + dot(w.z_sum, 52) * 0.01).item<double>();
  };
  const Tensor dlogits = run(f, logits).dlogits;
  for (const int64_t at : {0, 17, 1000, 2900}) {
    Tensor up = logits.clone(), down = logits.clone();
    up.view(-1)[at] += kStep;
    down.view(-1)[at] -= kStep;
    // The third derivative is of order 1, so the error is kStep², plus the objective's own roundoff divided by kStep.
    EXPECT_NEAR(dlogits.view(-1)[at].item<double>(), (objective(up) - objective(down)) / (2 * kStep), 1e-7);
  }
}

TEST(RouterScores, DoNotDependOnThreadsOrOnOtherSequences) {
  const RouterRule rule{kExperts, kTopK, false, true, 1};
  const Tensor logits = normal({kSequences * kTokens, kExperts}, 5), ids = some_ids(6);
  const auto sums = [&](const Tensor& l, const Tensor& i, int64_t sequences) {
    return weigh(l, compute_scores(l, rule), i, sequences, rule).prob_sum_BE;
  };
  const Tensor together = sums(logits, ids, kSequences);
  for (int64_t b = 0; b < kSequences; ++b) {
    EXPECT_TRUE(at::equal(sums(logits.narrow(0, b * kTokens, kTokens), ids.narrow(0, b * kTokens, kTokens), 1)[0],
                          together[b]));
  }
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_TRUE(at::equal(sums(logits, ids, kSequences), together));
  at::set_num_threads(threads);
}

TEST(RouterScores, ThatAllUnderflowedGiveNoNaN) {
  for (const bool sigmoid : {false, true}) {
    const RouterRule rule{3, 2, sigmoid, true, 1};
    const Tensor logits = at::tensor({sigmoid ? -500.f : 300.f, -500.f, -500.f}).view({1, 3});
    const Tensor ids = at::tensor({1, 2}, at::kLong).view({1, 2});  // as a balance may give
    const auto result = run([&](const Tensor& l) { return weigh(l, compute_scores(l, rule), ids, 1, rule); }, logits);
    EXPECT_TRUE(result.out.weights_TK.isfinite().all().item<bool>());
    EXPECT_TRUE(result.dlogits.isfinite().all().item<bool>());
    EXPECT_TRUE(std::isfinite(entropy_sum(result.out)));
  }
}

}  // namespace
}  // namespace athanor::moe::scores_test
