// The elementwise parts of SGD, Sophia-G and Muon against their formulas, in fp32 and with split masters; the
// form of devices against the same.

#include "ops/update.h"

#include "ops/master.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::update_test {
namespace {

using namespace test;

constexpr int64_t kSize = 70'001;  // several blocks and threads, and no whole number of lanes
constexpr float kLr = 0.01f, kDecay = 0.1f, kScale = 0.5f;

// Memory of an update: masters of one size, gradients, and two kinds of state, of which the second is positive.
struct Case {
  explicit Case(at::ScalarType dtype, double gradient = 1) {
    before = normal({kSize}, 1);
    memory.weight = at::empty({kSize}, at::TensorOptions(dtype));
    if (dtype == at::kBFloat16) memory.master_low = at::empty({kSize}, at::kUInt16);
    dtype == at::kBFloat16 ? split_master(before, memory.weight, memory.master_low)
                           : static_cast<void>(memory.weight.copy_(before));
    before = master().clone();
    memory.grad = gradient * normal({kSize}, 2);
    grad = memory.grad.clone();
    first = normal({kSize}, 3) * gradient;
    second = normal({kSize}, 4).square() * gradient * gradient;
  }
  Tensor master() const {
    return memory.master_low.defined() ? join_master(memory.weight, memory.master_low) : memory.weight.clone();
  }
  // A stored master may be an ulp away in its halves.
  void expect_master(const Tracked& expected, const std::string& what) const {
    expect_within(master(), expected.value, expected.error + 0x1p-23 * expected.largest(), what);
  }
  int64_t count_changed() const {
    const Tensor now = memory.weight.to(at::kFloat), old = before.to(memory.weight.scalar_type()).to(at::kFloat);
    return (now != old).sum().item<int64_t>();
  }
  Tracked scaled() const { return exact(grad) * exact(kScale); }
  Tracked kept() const { return exact(before) * (exact(1) - exact(kLr) * exact(kDecay)); }

  Tensor before, grad, first, second;
  UpdateMemory memory;
};

void expect_cleared(const Case& c) { EXPECT_EQ(c.memory.grad.count_nonzero().item<int64_t>(), 0); }

TEST(Update, SgdIsMomentumWithDecoupledDecay) {
  for (const auto dtype : kComputeTypes) {
    for (const bool nesterov : {false, true}) {
      Case c(dtype);
      const Tensor momentum = c.first.clone();
      const kernels::SgdRule rule{kLr, kDecay, 0.9f, nesterov};
      const int64_t changed = update(rule, kScale, c.memory, {momentum}, {});
      const Tracked m = exact(c.first) * exact(0.9f) + c.scaled();
      expect_within(momentum, m, "momentum");
      c.expect_master(c.kept() - exact(kLr) * (nesterov ? c.scaled() + exact(0.9f) * m : m), "master");
      EXPECT_EQ(changed, c.count_changed());
      expect_cleared(c);
    }
  }
}

TEST(Update, SophiaClipsTheMeanGradientOverTheHessianAndCountsHowOften) {
  for (const auto dtype : kComputeTypes) {
    Case c(dtype);
    const Tensor m = c.first.clone(), clipped = at::zeros({1}, at::kLong);
    const kernels::SophiaRule rule{kLr, kDecay, 0.9f, 0.7f};
    const int64_t changed = update(rule, kScale, c.memory, {m, c.second}, {}, clipped);
    const Tracked expected_m = exact(c.first) + (exact(1) - exact(0.9f)) * (c.scaled() - exact(c.first));
    expect_within(m, expected_m, "m");
    const Tracked ratio = expected_m * reciprocal(exact(0.7f) * exact(c.second) + exact(1e-15f));
    const Tracked step = monotone(ratio, 0, [](const Tensor& x) { return x.clamp(-1, 1); });
    c.expect_master(c.kept() - exact(kLr) * step, "master");
    EXPECT_EQ(changed, c.count_changed());
    const Tensor surely = (ratio.value.abs() - ratio.error > 1).sum(), perhaps = (ratio.largest() > 1).sum();
    EXPECT_GE(clipped.item<int64_t>(), surely.item<int64_t>());
    EXPECT_LE(clipped.item<int64_t>(), perhaps.item<int64_t>());
    EXPECT_GT(surely.item<int64_t>(), 0);
    EXPECT_LT(perhaps.item<int64_t>(), kSize);
    expect_cleared(c);
  }
}

TEST(Update, AHessianIsAMeanOfSquaresThatDoNotUnderflow) {
  const double tiny = 1e-21;  // its square is below the numbers of fp32, and 10⁶ times its square is not
  Case c(at::kFloat, tiny);
  const Tensor h = at::zeros({kSize});
  add_squares(0.99, 1e6, c.grad, h);
  const Tracked expected = (exact(1) - exact(0.99f)) * ((exact(1e6f) * exact(c.grad)) * exact(c.grad));
  expect_within(h, expected.value, expected.error + 0x1p-149, "hessian");
  EXPECT_GT(h.gt(0).sum().item<int64_t>(), kSize / 2);
}

TEST(Update, MuonsDirectionIsTheMomentumOrLooksAhead) {
  for (const bool nesterov : {false, true}) {
    Case c(at::kFloat);
    const Tensor momentum = c.first.clone();
    momentum_direction({0.95f, kScale, nesterov}, c.memory.grad, momentum, {});
    const Tracked g = c.scaled(), m = exact(c.first) + (exact(1) - exact(0.95f)) * (g - exact(c.first));
    expect_within(momentum, m, "momentum");
    expect_within(c.memory.grad, nesterov ? g + exact(0.95f) * (m - g) : m, "direction");
  }
}

TEST(Update, SubtractsADirectionFromMasters) {
  for (const auto dtype : kComputeTypes) {
    Case c(dtype);
    const int64_t changed = update(kernels::SubtractRule{0.75f, 0.125f}, 1, c.memory, {}, {});
    c.expect_master(exact(c.before) * exact(0.75) - exact(c.grad) * exact(0.125), "master");
    EXPECT_EQ(changed, c.count_changed());
    expect_cleared(c);
  }
}

}  // namespace
}  // namespace athanor::ops::update_test
