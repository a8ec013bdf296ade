// LAMB's two passes against their formulas, with parts of matrices anywhere in memory, for any number of threads.

#include "ops/lamb.h"

#include "ops/master.h"
#include "ops/testing/op_testing.h"
#include "ops/update_memory.h"

namespace athanor::ops::lamb_test {
namespace {

using namespace test;

constexpr int64_t kFlat = 90'000, kMatrices = 4;
constexpr float kDecay = 0.1f, kScale = 0.5f;

// Several runs, less than one, parts that are not counted, a matrix in two parts, and one that has none. Moments begin
// 3 elements later than weights, lower bits 10.
const MatrixParts& parts() {
  constexpr int64_t kRun = kernels::kMatrixRun;
  const auto part = [](int64_t begin, int64_t size, int64_t matrix, int64_t is_counted) {
    return kernels::MatrixPart{begin, size, begin + 10, begin + 3, matrix, is_counted};
  };
  static const MatrixParts all({part(100, 4 * kRun + 33, 0, 1), part(100 + 4 * kRun + 33, 1000, 0, 0),
                                part(50'000, 17, 1, 1), part(50'100, 2 * kRun, 3, 1)},
                               at::kCPU);
  return all;
}

struct Case {
  explicit Case(at::ScalarType dtype) {
    const Tensor drawn = normal({kFlat}, 1);
    memory.weight = at::empty({kFlat}, at::TensorOptions(dtype));
    if (dtype == at::kBFloat16) {
      memory.master_low = at::empty({kFlat + 10}, at::kUInt16);
      split_master(drawn, memory.weight, memory.master_low.narrow(0, 10, kFlat));
    } else {
      memory.weight.copy_(drawn);
    }
    before = master();
    memory.grad = normal({kFlat}, 2);
    grad = memory.grad.clone();
    m = normal({kFlat + 3}, 3);
    v = normal({kFlat + 3}, 4).square();
  }
  Tensor master() const {
    return memory.master_low.defined() ? join_master(memory.weight, memory.master_low.narrow(0, 10, kFlat))
                                       : memory.weight.clone();
  }

  Tensor before, grad, m, v;
  UpdateMemory memory;
};

kernels::LambStep rule() {
  kernels::LambStep rule{};
  rule.eps = 1e-6f, rule.weight_decay = kDecay, rule.beta1 = 0.9, rule.beta2 = 0.99;
  rule.bias_correction1 = 0.271f, rule.bias_correction2 = 0.0297f, rule.grad_scale = kScale;
  return rule;
}

// `x` where a part is, and `otherwise`, of the same type, elsewhere.
Tensor in_parts(const Tensor& x, const Tensor& otherwise, int64_t offset = 0) {
  Tensor result = otherwise.clone();
  for (const auto& part : parts().parts())
    result.narrow(0, part.begin + offset, part.size).copy_(x.narrow(0, part.begin + offset, part.size));
  return result;
}

Tracked root(const Tracked& a) {
  return monotone({a.value, a.error}, 1, [](const Tensor& x) { return x.clamp_min(0).sqrt(); });
}

TEST(Lamb, DirectionsAreThoseOfAdamWithDecayAndSumsAreOfTheSquaresThatCount) {
  for (const auto dtype : kComputeTypes) {
    Case c(dtype);
    const Tensor old_m = c.m.clone(), old_v = c.v.clone(), squares = at::ones({kMatrices, 2}, at::kDouble);
    lamb_directions(rule(), parts(), c.memory, c.m, c.v, squares, {});
    const auto rest = [](double beta) { return exact(static_cast<float>(1 - beta)); };
    const auto flat = [](const Tensor& x) { return x.narrow(0, 3, kFlat); };
    const Tracked g = exact(c.grad) * exact(kScale), m = exact(flat(old_m)) + rest(0.9) * (g - exact(flat(old_m))),
                  v = exact(0.99f) * exact(flat(old_v)) + rest(0.99) * g * g;
    const Tracked below = root(v) * reciprocal(root(exact(rule().bias_correction2))) + exact(1e-6f);
    const Tracked u =
        m * reciprocal(exact(rule().bias_correction1)) * reciprocal(below) + exact(kDecay) * exact(c.before);
    const auto cleared = [](const Tensor& x) { return in_parts(x, at::zeros_like(x)); };
    expect_within(cleared(flat(c.m)), {cleared(m.value), m.error}, "m");
    expect_within(cleared(flat(c.v)), {cleared(v.value), v.error}, "v");
    expect_within(cleared(c.memory.grad), {cleared(u.value), u.error}, "direction");
    // Elsewhere nothing changes.
    EXPECT_TRUE(at::equal(in_parts(old_m, c.m, 3), old_m));
    EXPECT_TRUE(at::equal(in_parts(old_v, c.v, 3), old_v));
    EXPECT_TRUE(at::equal(in_parts(c.grad, c.memory.grad), c.grad));
    EXPECT_TRUE(at::equal(c.master(), c.before));
    // Squares of fp32 are exact in fp64, and each is added once.
    Tensor expected = at::ones({kMatrices, 2}, at::kDouble);
    for (const auto& part : parts().parts()) {
      for (const auto& [at, values] : {std::pair(0, c.before), {1, c.memory.grad}}) {
        if (part.is_counted)
          expected[part.matrix][at] += values.narrow(0, part.begin, part.size).to(at::kDouble).square().sum();
      }
    }
    EXPECT_LE(((squares - expected).abs() / expected).max().item<double>(), kFlat * 2 * 0x1p-53);
  }
}

TEST(Lamb, TheStepIsTheRatioOfItsMatrixTimesTheDirectionInTheRangeThatIsAsked) {
  const Tensor ratios = at::tensor({0.5f, 2.0f, NAN, 0.03f});
  constexpr double kFactor = 0.125;
  constexpr int64_t kBegin = 9'000, kEnd = 51'000;  // it cuts the first part and the last
  for (const auto dtype : kComputeTypes) {
    Case c(dtype);
    const int64_t changed = apply_lamb(kFactor, ratios, parts(), kBegin, kEnd, c.memory, {});
    Tensor expected = c.before.clone(), left = c.grad.clone();
    for (const auto& part : parts().parts()) {
      const int64_t begin = std::max(part.begin, kBegin), size = std::min(part.begin + part.size, kEnd) - begin;
      const float rate = static_cast<float>(kFactor * double{ratios[part.matrix].item<float>()});
      expected.narrow(0, begin, size).sub_(c.grad.narrow(0, begin, size) * rate);
      left.narrow(0, begin, size).zero_();
    }
    // A stored master may be an ulp away in its halves (kernels/master.h).
    const double off = dtype == at::kFloat ? 0 : 0x1p-23 * expected.abs().max().item<double>();
    EXPECT_LE((c.master() - expected).abs().max().item<double>(), off);
    EXPECT_TRUE(at::equal(c.memory.grad, left));
    const Tensor old = c.before.to(dtype).to(at::kFloat);
    EXPECT_EQ(changed, (c.memory.weight.to(at::kFloat) != old).sum().item<int64_t>());
    EXPECT_GT(changed, 0);
  }
}

TEST(Lamb, ThreadsChangeNoBit) {
  const int threads = at::get_num_threads();
  std::vector<Tensor> found;
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    Case c(at::kFloat);
    const Tensor squares = at::zeros({kMatrices, 2}, at::kDouble);
    lamb_directions(rule(), parts(), c.memory, c.m, c.v, squares, {});
    found.push_back(squares);
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(found[0], found[1]));
}

}  // namespace
}  // namespace athanor::ops::lamb_test
