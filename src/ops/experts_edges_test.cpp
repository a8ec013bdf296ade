// Properties of the experts that a bound does not show: exact zeros, ranges, repetition.

#include "ops/experts.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::experts_edges_test {
namespace {

using namespace test;

// 280 choices of 8 experts: the rows of each are padded.
constexpr int64_t kTokens = 140, kHidden = 24, kFfn = 20, kExperts = 8, kChoices = 2;

struct Inputs {
  explicit Inputs(at::ScalarType dtype)
      : x(normal({kTokens, kHidden}, 1, dtype)), dy(normal({kTokens, kHidden}, 2, dtype)),
        gates(normal({kTokens, kChoices}, 3).abs()),
        ids(std::get<1>(normal({kTokens, kExperts}, 9).topk(kChoices, -1))) {}
  Tensor x, dy, gates, ids;
};

// Returns the weights of experts [first, first + count).
ExpertWeights weights_of(at::ScalarType dtype, int64_t first = 0, int64_t count = kExperts) {
  const auto part = [&](at::IntArrayRef shape, uint64_t seed) {
    return weight_of(normal(shape, seed, dtype).narrow(0, first, count).clone());
  };
  return {part({kExperts, kFfn, kHidden}, 4), part({kExperts, kFfn, kHidden}, 5), part({kExperts, kHidden, kFfn}, 6)};
}

Outcome run_experts(const Inputs& in, const ExpertWeights& w, int64_t first = 0, int64_t count = kExperts) {
  return run([&](const auto& leaves) { return experts(leaves[0], leaves[1], in.ids, w, first, count); },
             {in.x, in.gates}, in.dy);
}

std::vector<Tensor> grads_of(const ExpertWeights& w) { return {w.gate_LFD.grad, w.up_LFD.grad, w.down_LDF.grad}; }

TEST(Experts, OneWithoutTokensGetsExactlyNoGradient) {
  for (const auto dtype : kComputeTypes) {
    Inputs in(dtype);
    in.ids = in.ids.masked_fill(in.ids == 3, 8).masked_fill(in.ids == 0, 8);  // no token chooses 0 and 3
    const ExpertWeights w = weights_of(dtype);
    run_experts(in, w);
    for (const Tensor& grad : grads_of(w)) {
      for (int64_t e = 0; e < kExperts; ++e) {
        EXPECT_EQ(grad[e].abs().max().item<float>() == 0, e == 0 || e == 3) << "expert " << e;
      }
    }
  }
}

TEST(Experts, WithoutAnyLocalChoiceTheResultAndAllGradientsAreExactlyZero) {
  for (const auto dtype : kComputeTypes) {
    Inputs in(dtype);
    in.ids = at::tensor({-1, 8}, at::kLong).expand({kTokens, kChoices});
    const ExpertWeights w = weights_of(dtype);
    const Outcome fast = run_experts(in, w);
    expect_same_bits(fast.y, at::zeros_like(in.x), "y");
    expect_same_bits(fast.dx[0], at::zeros_like(in.x), "dx");
    expect_same_bits(fast.dx[1], at::zeros_like(in.gates), "dgates");
    for (const Tensor& grad : grads_of(w)) expect_same_bits(grad, at::zeros_like(grad), "weights");
  }
}

TEST(Experts, ARangeGivesItsExpertsTheBitsThatAllGive) {
  for (const auto dtype : kComputeTypes) {
    const Inputs in(dtype);
    const ExpertWeights all = weights_of(dtype), low = weights_of(dtype, 0, 3), high = weights_of(dtype, 3, 5);
    const Outcome whole = run_experts(in, all), left = run_experts(in, low, 0, 3), right = run_experts(in, high, 3, 5);
    for (size_t i = 0; i < 3; ++i) {
      expect_same_bits(at::cat({grads_of(low)[i], grads_of(high)[i]}), grads_of(all)[i], fmt::format("weight {}", i));
    }
    // Each choice is in one range; its gate's gradient is zero in the other.
    expect_same_bits(left.dx[1] + right.dx[1], whole.dx[1], "dgates");
    // A token's K rows are added in two parts and each part is stored, which is one more rounding for each.
    const Tensor parts = left.y.to(at::kDouble).abs() + right.y.to(at::kDouble).abs();
    const Tensor bound = 2 * error_bound(parts, dtype, kChoices);
    expect_within(left.y.to(at::kDouble) + right.y.to(at::kDouble), whole.y.to(at::kDouble), bound, "y");
  }
}

TEST(Experts, GradientsOfTwoCallsAddUpInTheBuckets) {
  for (const auto dtype : kComputeTypes) {
    const Inputs in(dtype);
    const ExpertWeights once = weights_of(dtype), twice = weights_of(dtype);
    run_experts(in, once);
    for (int call = 0; call < 2; ++call) run_experts(in, twice);
    for (size_t i = 0; i < 3; ++i) {
      if (dtype == at::kBFloat16) {  // a product is rounded to bf16, then added in fp32: twice is exact
        expect_same_bits(grads_of(twice)[i], grads_of(once)[i] * 2, fmt::format("weight {}", i));
      } else {
        // Up to T products are added to an existing sum, in any order: T + 1 roundings of each. Norms of rows bound the
        // sums of products (Cauchy and Schwarz); the largest of all rows is enough.
        EXPECT_GT(grads_of(once)[i].abs().max().item<float>(), 0);
        const Tensor expected = grads_of(once)[i].to(at::kDouble) * 2;
        const double norm = 2 * grads_of(once)[i].abs().max().item<double>() * kTokens;
        expect_within(grads_of(twice)[i], expected, at::full_like(expected, error_bound(norm, at::kFloat, kTokens + 1)),
                      "twice");
      }
    }
  }
}

TEST(Experts, TwoRunsOnTwoThreadsGiveTheSameBits) {
  const Threads two(2);
  for (const auto dtype : kComputeTypes) {
    const Inputs in(dtype);
    const ExpertWeights a = weights_of(dtype), b = weights_of(dtype);
    const Outcome first = run_experts(in, a), second = run_experts(in, b);
    expect_same_bits(first.y, second.y, "y");
    for (size_t i = 0; i < 2; ++i) expect_same_bits(first.dx[i], second.dx[i], fmt::format("gradient {}", i));
    for (size_t i = 0; i < 3; ++i) expect_same_bits(grads_of(a)[i], grads_of(b)[i], fmt::format("weight {}", i));
  }
}

TEST(Experts, EvaluateWithoutBucketsToTheSameBits) {
  for (const auto dtype : kComputeTypes) {
    const Inputs in(dtype);
    const ExpertWeights w = weights_of(dtype);
    const Tensor y = experts(in.x, in.gates, in.ids, w, 0, kExperts).detach();
    const ExpertWeights bare = {{w.gate_LFD.value, {}}, {w.up_LFD.value, {}}, {w.down_LDF.value, {}}};
    expect_same_bits(experts(in.x, in.gates, in.ids, bare, 0, kExperts), y, "without buckets");
    const at::NoGradGuard no_grad;
    expect_same_bits(experts(in.x, in.gates, in.ids, w, 0, kExperts), y, "without gradient");
  }
}

TEST(Experts, TakeAnyStridesAndRefuseGatesOfAnotherType) {
  const Inputs in(at::kFloat);
  const ExpertWeights w = weights_of(at::kFloat);
  const at::NoGradGuard no_grad;
  const auto turn = [](const Tensor& t) { return t.t().contiguous().t(); };
  expect_same_bits(experts(turn(in.x), turn(in.gates), turn(in.ids), w, 0, kExperts),
                   experts(in.x, in.gates, in.ids, w, 0, kExperts), "y");
  EXPECT_THROW(experts(in.x, in.gates.to(at::kBFloat16), in.ids, w, 0, kExperts), Error);
  EXPECT_THROW(experts(in.x, in.gates, in.ids.to(at::kInt), w, 0, kExperts), Error);
}

}  // namespace
}  // namespace athanor::ops::experts_edges_test
