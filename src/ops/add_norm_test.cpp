// Compares the residual add and its norm in one pass with the two separate ops.

#include <functional>

#include "ops/norm.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::add_norm_test {
namespace {

using namespace test;

constexpr double kEps = 1e-5;
const RmsForm kForm{kEps, 0.25};

using Fused = std::function<NormedSum(const Tensor& x, const Tensor& branch, const Weight& weight)>;

NormedSum fused_rms(const Tensor& x, const Tensor& branch, const Weight& w) {
  return add_rms_norm(x, branch, w, kForm);
}
NormedSum apart_rms(const Tensor& x, const Tensor& branch, const Weight& w) {
  const Tensor sum = x + branch;
  return {sum, rms_norm(sum, w, kForm)};
}
NormedSum fused_layer(const Tensor& x, const Tensor& branch, const Weight&) { return add_layer_norm(x, branch, kEps); }
NormedSum apart_layer(const Tensor& x, const Tensor& branch, const Weight&) {
  const Tensor sum = x + branch;
  return {sum, layer_norm(sum, kEps)};
}

// The results that a loss uses.
enum class Used { kBoth, kSum, kNormed };

struct Results {
  Tensor sum, normed, dx, dbranch, dw;
};

Results run_both(const Fused& op, const Tensor& x_in, const Tensor& branch_in, const Tensor& w, Used used) {
  const Tensor x = x_in.clone().requires_grad_(), branch = branch_in.clone().requires_grad_();
  const Weight weight = weight_of(w, 0.5);
  const auto [sum, normed] = op(x, branch, weight);
  std::vector<Tensor> roots, grads;
  if (used != Used::kNormed) roots.push_back(sum), grads.push_back(normal(x.sizes(), 5, x.scalar_type()));
  if (used != Used::kSum) roots.push_back(normed), grads.push_back(normal(x.sizes(), 6, x.scalar_type()));
  torch::autograd::backward(roots, grads);
  return {sum.detach(), normed.detach(), x.grad(), branch.grad(), weight.grad};
}

void expect_the_bits_of(const Fused& fused, const Fused& apart) {
  for (const auto dtype : kComputeTypes) {
    for (const auto& [rows, width] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 8}, {1, 1}, {3, 17}, {65, 33}, {200, 50}, {3, 4096}}) {
      const Tensor x = normal({rows, width}, 1, dtype) * 3, branch = normal({rows, width}, 2, dtype);
      const Tensor w = normal({width}, 3, dtype);
      for (const Used used : {Used::kBoth, Used::kSum, Used::kNormed}) {
        const auto name = fmt::format("{} rows of {} {}: ", rows, width, name_of(dtype));
        const Results one = run_both(fused, x, branch, w, used), two = run_both(apart, x, branch, w, used);
        expect_same_bits(one.sum, two.sum, name + "sum");
        expect_same_bits(one.normed, two.normed, name + "normed");
        expect_same_bits(one.dx, two.dx, name + "dx");
        expect_same_bits(one.dbranch, two.dbranch, name + "dbranch");
        expect_same_bits(one.dw, two.dw, name + "dw");
      }
    }
  }
}

TEST(AddRmsNorm, HasTheBitsOfTheAddAndTheNormApart) { expect_the_bits_of(fused_rms, apart_rms); }

TEST(AddLayerNorm, HasTheBitsOfTheAddAndTheNormApart) { expect_the_bits_of(fused_layer, apart_layer); }

TEST(AddRmsNorm, InAChainOfLayersGradientsHaveTheBitsOfTheOpsApart) {
  // The next layer uses the sum as well as its norm: backward receives gradients from both.
  const Tensor w = normal({40}, 3, at::kBFloat16), x_in = normal({2, 9, 40}, 1, at::kBFloat16);
  const auto through = [&](const Fused& op) {
    Tensor x = x_in.clone().requires_grad_(), leaf = x;
    const Weight weight = weight_of(w);
    NormedSum stream = op(x, x * 0.5, weight);
    for (int layer = 0; layer < 3; ++layer) stream = op(stream.sum, at::silu(stream.normed), weight);
    torch::autograd::backward({stream.normed}, {normal(x.sizes(), 4, at::kBFloat16)});
    return std::pair{leaf.grad(), weight.grad};
  };
  const auto [dx, dw] = through(fused_rms);
  const auto [expected_dx, expected_dw] = through(apart_rms);
  expect_same_bits(dx, expected_dx, "dx");
  expect_same_bits(dw, expected_dw, "dw");
}

TEST(AddRmsNorm, WithoutAutogradGivesTheSameAndKeepsNothing) {
  const Tensor x = normal({5, 24}, 1), branch = normal({5, 24}, 2);
  const Weight weight = weight_of(normal({24}, 3));
  const auto [sum, normed] = add_rms_norm(x.clone().requires_grad_(), branch, weight, kEps);
  const at::NoGradGuard no_grad;
  const auto plain = add_rms_norm(x, branch, weight, kEps), layer = add_layer_norm(x, branch, kEps);
  expect_same_bits(plain.sum, sum.detach(), "sum");
  expect_same_bits(plain.normed, normed.detach(), "normed");
  EXPECT_FALSE(plain.normed.requires_grad());
  expect_same_bits(layer.normed, layer_norm(x + branch, kEps), "layer norm");
}

TEST(AddRmsNorm, DoesNotDependOnThreadsAndTakesAnyStrides) {
  const Tensor x = normal({301, 96}, 1, at::kBFloat16), branch = normal({96, 301}, 2, at::kBFloat16).t();
  const Tensor w = normal({96}, 3, at::kBFloat16);
  const auto with = [&](int threads) {
    const Threads some(threads);
    return run_both(fused_rms, x, branch, w, Used::kBoth);
  };
  const Results one = with(1), contiguous = run_both(fused_rms, x, branch.contiguous(), w, Used::kBoth);
  for (const Results& again : {with(2), with(3), contiguous}) {
    expect_same_bits(again.dx, one.dx, "dx");
    expect_same_bits(again.dw, one.dw, "dw");
  }
}

}  // namespace
}  // namespace athanor::ops::add_norm_test
