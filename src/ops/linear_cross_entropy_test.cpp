#include "ops/linear_cross_entropy.h"

#include "kernels/cross_entropy.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::linear_cross_entropy_test {
namespace {

using namespace test;
using kernels::kNoTarget;

struct Case {
  int64_t tokens, hidden, vocab;

  Tensor x(at::ScalarType dtype) const { return normal({tokens, hidden}, 1, dtype); }
  Tensor weight(at::ScalarType dtype) const { return normal({vocab, hidden}, 2, dtype); }
  // Every fifth position has no target.
  Tensor targets() const {
    const Tensor ids = at::randint(vocab, {tokens}, at::detail::createCPUGenerator(3), at::kLong);
    return ids.masked_fill(at::arange(tokens, at::kLong).remainder(5) == 3, kNoTarget);
  }
  std::string name(at::ScalarType dtype) const {
    return fmt::format("{} tokens of {}, {} words, {}", tokens, hidden, vocab, name_of(dtype));
  }
};

const std::vector<Case> kCases = {{0, 4, 5}, {1, 1, 1}, {1, 7, 2}, {9, 16, 17}, {40, 33, 100}, {13, 8, 1003}};

struct Reference {
  Tracked losses, loss, dx, dw;
};

Reference reference(const Case& c, at::ScalarType dtype, double grad_scale, double cap = 0) {
  const Tracked x = exact(c.x(dtype)), w = exact(c.weight(dtype));
  const auto turned = [](const Tracked& a) { return a.view([](const Tensor& t) { return t.t(); }); };
  const Tensor targets = c.targets(), counts = (targets != kNoTarget).to(at::kDouble);
  const Tensor onehot = at::one_hot(targets.clamp_min(0), c.vocab).to(at::kDouble) * counts.unsqueeze(1);

  const Tracked uncapped = stored(matmul(x, turned(w)), dtype),
                logits = cap > 0 ? stored(soft_cap(uncapped, cap), dtype) : uncapped;
  const Tracked share = logits * (cap > 0 ? 1 / cap : 0), slope = exact(1.0) - share * share;
  const Tracked peak = exact(logits.value.amax(-1, /*keepdim=*/true)), mask = exact(counts), hot = exact(onehot);
  const Tracked e = exp(logits - peak), total = sum(e, -1, /*keepdim=*/true);
  const Tracked at_target = logits * hot;  // one element of each row; the others are exactly zero
  const Tracked picked{at_target.value.sum(-1), at_target.error.sum(-1)};
  const auto flat = [](const Tracked& a) { return a.view([](const Tensor& t) { return t.squeeze(-1); }); };
  const Tracked losses = ((flat(peak) - picked) + flat(log(total))) * mask;
  const Tracked rows = exact(counts.unsqueeze(1));
  const Tracked dcapped = stored((e * reciprocal(total) - hot) * grad_scale * rows, dtype),
                dlogits = cap > 0 ? stored(dcapped * slope, dtype) : dcapped;
  return {losses,
          {losses.value.sum(), losses.error.sum()},  // in fp64
          stored(matmul(dlogits, w), dtype),
          stored(matmul(turned(dlogits), x), dtype)};
}

Outcome run_case(const Case& c, const Weight& weight, double grad_scale, int64_t chunk_tokens, double cap = 0) {
  const auto f = [&](const auto& in) {
    return linear_cross_entropy(in[0], weight, c.targets(), grad_scale, chunk_tokens, {}, cap);
  };
  return run(f, {c.x(weight.value.scalar_type())}, at::ones({}));
}

// The weight's gradient over several chunks. In bf16 each chunk's product is stored; `stored` bounds the whole if signs
// agree, otherwise each product is bounded by its own terms.
Tracked over_chunks(const Case& c, const Reference& expected, at::ScalarType dtype, double grad_scale) {
  if (dtype == at::kFloat) return expected.dw;
  const Tensor norm = at::matmul(at::full({c.vocab, c.tokens}, std::abs(grad_scale), at::kDouble),
                                 c.x(dtype).to(at::kDouble).abs());  // |softmax − onehot| <= 1
  return {expected.dw.value, expected.dw.error + unit_roundoff(dtype) * norm};
}

TEST(LinearCrossEntropy, LossAndBothGradientsAreWithinTheirBoundsForAnyChunkAndWithACap) {
  for (const auto dtype : kComputeTypes) {
    for (const Case& c : kCases) {
      for (const double grad_scale : {1.0, -0.37, 1e-6}) {
        const double cap = grad_scale == 1 ? 0 : 2;
        const Reference expected = reference(c, dtype, grad_scale, cap);
        for (const int64_t chunk : {1, 7, 1000}) {
          const Weight weight = weight_of(c.weight(dtype), 0.5);
          const Outcome fast = run_case(c, weight, grad_scale, chunk, cap);
          const auto name = fmt::format("{}, scale {}, chunk {}", c.name(dtype), grad_scale, chunk);
          EXPECT_EQ(fast.y.scalar_type(), at::kDouble);
          expect_within(fast.y, expected.loss, name + " loss");
          expect_within(fast.dx[0], expected.dx, name + " dx");
          expect_within(weight.grad, added_to(0.5, over_chunks(c, expected, dtype, grad_scale), c.tokens),
                        name + " dw");
        }
      }
    }
  }
}

TEST(LinearCrossEntropy, PortableFormAgreesWithTheFormulaInFp64) {
  for (const Case& c : kCases) {
    const double cap = c.vocab > 50 ? 2 : 0;
    const auto f = [&](const auto& in) { return portable::linear_cross_entropy(in[0], in[1], c.targets(), cap); };
    const Outcome oracle = run_fp64(f, {c.x(at::kFloat), c.weight(at::kFloat)}, at::ones({}));
    const Reference expected = reference(c, at::kFloat, 1.0, cap);
    expect_same_formula(oracle.y, expected.loss, c.name(at::kFloat) + " loss");
    expect_same_formula(oracle.dx[0], expected.dx, c.name(at::kFloat) + " dx");
    expect_same_formula(oracle.dx[1], expected.dw, c.name(at::kFloat) + " dw");
    for (const auto dtype : kComputeTypes) {
      const Tensor loss = portable::linear_cross_entropy(c.x(dtype), c.weight(dtype), c.targets());
      // The library adds the losses in fp32.
      expect_within(loss, rounded(reference(c, dtype, 1.0).loss, c.tokens), c.name(dtype) + " portable loss");
    }
  }
}

TEST(LinearCrossEntropy, APositionWithoutTargetGetsExactlyNoGradient) {
  const Case c{20, 8, 11};
  const Weight weight = weight_of(c.weight(at::kBFloat16));
  const Outcome fast = run_case(c, weight, 0.1, 6);
  for (int64_t t = 0; t < 20; ++t) {
    EXPECT_EQ(fast.dx[0][t].abs().max().item<float>() == 0, t % 5 == 3) << t;
  }
}

TEST(LinearCrossEntropy, WithoutAnyTargetIsZeroAndLeavesTheBucketAlone) {
  const Weight weight = weight_of(normal({11, 8}, 2), 0.5);
  const Tensor none = at::full({6}, kNoTarget, at::kLong);
  const Outcome fast = run([&](const auto& in) { return linear_cross_entropy(in[0], weight, none, 1.0, 4); },
                           {normal({6, 8}, 1)}, at::ones({}));
  EXPECT_EQ(fast.y.item<double>(), 0);
  expect_same_bits(fast.dx[0], at::zeros({6, 8}), "dx");
  expect_same_bits(weight.grad, at::full({11, 8}, 0.5), "dw");
}

TEST(LinearCrossEntropy, GradientsOfTwoCallsAddUpInTheBucket) {
  const Case c{12, 9, 21};
  const Weight weight = weight_of(c.weight(at::kFloat));
  for (int call = 0; call < 2; ++call) run_case(c, weight, 0.25, 5);
  const Tracked dw = reference(c, at::kFloat, 0.25).dw;
  expect_within(weight.grad, {2 * dw.value, added_to(0, dw, c.tokens).error * 2}, "twice");
}

TEST(LinearCrossEntropy, TwoRunsOnTwoThreadsGiveTheSameBits) {
  const Threads two(2);
  const Case c{70, 32, 300};
  for (const auto dtype : kComputeTypes) {
    const Weight a = weight_of(c.weight(dtype)), b = weight_of(c.weight(dtype));
    const Outcome first = run_case(c, a, 0.01, 32), second = run_case(c, b, 0.01, 32);
    expect_same_bits(first.y, second.y, "loss");
    expect_same_bits(first.dx[0], second.dx[0], "dx");
    expect_same_bits(a.grad, b.grad, "dw");
  }
}

TEST(LinearCrossEntropy, RefusesATargetBeyondTheVocabularyAndAnyGradientButOne) {
  const Case c{4, 8, 11};
  const Weight weight = weight_of(c.weight(at::kFloat));
  for (const int64_t bad : {11, -1, -99}) {
    EXPECT_THROW(linear_cross_entropy(c.x(at::kFloat), weight, at::full({4}, bad, at::kLong), 1.0, 4), DataError);
    EXPECT_THROW(token_losses(c.x(at::kFloat), weight.value, at::full({4}, bad, at::kLong), 4), DataError);
  }
  const auto f = [&](const auto& in) { return linear_cross_entropy(in[0], weight, c.targets(), 1.0, 4); };
  EXPECT_THROW(run(f, {c.x(at::kFloat)}, at::full({}, 2.0)), Error);
  EXPECT_THROW(linear_cross_entropy(c.x(at::kFloat), weight, c.targets(), 1.0, 0), Error);
}

TEST(TokenLosses, AreTheTermsOfTheLossWithGreedyMarked) {
  for (const auto dtype : kComputeTypes) {
    for (const Case& c : kCases) {
      const Tracked losses = reference(c, dtype, 1.0).losses;
      const Tensor logits = at::linear(c.x(dtype), c.weight(dtype));
      for (const int64_t chunk : {1, 6, 1000}) {
        const TokenLosses scored = token_losses(c.x(dtype), c.weight(dtype), c.targets(), chunk);
        expect_within(scored.loss, losses, c.name(dtype));
        EXPECT_EQ(scored.is_greedy.scalar_type(), at::kBool);
        if (dtype == at::kFloat && c.tokens > 0) {  // fp32 logits of these cases have no ties
          EXPECT_TRUE(at::equal(scored.is_greedy, logits.argmax(-1) == c.targets())) << c.name(dtype);
        }
      }
    }
  }
}

TEST(TokenLosses, DoNotDependOnThreads) {
  const Case c{300, 16, 500};
  const auto with = [&](int threads) {
    const Threads some(threads);
    return token_losses(c.x(at::kFloat), c.weight(at::kFloat), c.targets(), 100).loss;
  };
  expect_same_bits(with(1), with(2), "losses");
}

}  // namespace
}  // namespace athanor::ops::linear_cross_entropy_test
