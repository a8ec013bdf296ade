#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/error_bound.h"
#include "kernels/master.h"

namespace athanor::kernels::adamw_test {
namespace {

// A number in double, and how far fp32 arithmetic may be from it: each operation adds its own rounding to the errors of
// its operands (running error analysis, Higham 2002, §3.3).
struct Tracked {
  double value = 0, error = 0;
};
Tracked round(double value, double carried) { return {value, carried + kRoundoffFp32 * (std::abs(value) + carried)}; }
Tracked operator+(Tracked a, Tracked b) { return round(a.value + b.value, a.error + b.error); }
Tracked operator-(Tracked a, Tracked b) { return round(a.value - b.value, a.error + b.error); }
Tracked operator*(Tracked a, Tracked b) {
  return round(a.value * b.value, std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error);
}
Tracked operator/(Tracked a, Tracked b) {
  const double quotient = a.value / b.value;
  return round(quotient, (a.error + std::abs(quotient) * b.error) / (std::abs(b.value) - b.error));
}
Tracked sqrt(Tracked a) {
  const double root = std::sqrt(a.value);
  return round(root, a.value > a.error ? a.error / std::sqrt(a.value - a.error) / 2 : std::sqrt(2 * a.error));
}
Tracked fp32(double value) { return round(value, 0); }

struct Hyper {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.1, grad_scale = 0.5;

  AdamwStep at(int64_t step) const {
    AdamwStep s{};
    s.lr = static_cast<float>(lr);
    s.beta1 = beta1;
    s.beta2 = beta2;
    s.eps = static_cast<float>(eps);
    s.weight_decay = static_cast<float>(weight_decay);
    s.bias_correction1 = static_cast<float>(1 - std::pow(beta1, static_cast<double>(step)));
    s.bias_correction2 = static_cast<float>(1 - std::pow(beta2, static_cast<double>(step)));
    s.grad_scale = static_cast<float>(grad_scale);
    return s;
  }
};

// The paper's algorithm 2 (decoupled decay), for one element.
struct Reference {
  Tracked master, exp_avg, exp_avg_sq;

  void step(const Hyper& h, int64_t step, double gradient) {
    const Tracked one{1, 0}, g = Tracked{gradient, 0} * fp32(h.grad_scale), lr = fp32(h.lr);
    exp_avg = fp32(h.beta1) * exp_avg + fp32(1 - h.beta1) * g;
    exp_avg_sq = fp32(h.beta2) * exp_avg_sq + fp32(1 - h.beta2) * g * g;
    const auto t = static_cast<double>(step);
    const Tracked m = exp_avg / fp32(1 - std::pow(h.beta1, t)), v = exp_avg_sq / fp32(1 - std::pow(h.beta2, t));
    master = master * (one - lr * fp32(h.weight_decay)) - lr * m / (sqrt(v) + fp32(h.eps));
  }
};

std::vector<float> normals(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

struct State {
  explicit State(size_t n) : master(normals(n, 1)), exp_avg(n), exp_avg_sq(n), grad(n) {}
  int64_t step(const AdamwStep& s) {
    return adamw(s, master.data(), exp_avg.data(), exp_avg_sq.data(), grad.data(), static_cast<int64_t>(grad.size()));
  }
  std::vector<float> master, exp_avg, exp_avg_sq, grad;
};

// The same state with the master in two halves.
struct SplitState {
  explicit SplitState(size_t n) : SplitState(State(n)) {}
  explicit SplitState(const State& whole)
      : weight(whole.grad.size()), low(whole.grad.size()), exp_avg(whole.exp_avg), exp_avg_sq(whole.exp_avg_sq),
        grad(whole.grad) {
    for (size_t i = 0; i < low.size(); ++i) split_master(whole.master[i], weight[i], low[i]);
  }
  int64_t step(const AdamwStep& s) {
    return adamw(s, weight.data(), low.data(), exp_avg.data(), exp_avg_sq.data(), grad.data(),
                 static_cast<int64_t>(grad.size()));
  }
  float master(size_t i) const { return join_master(weight[i], low[i]); }
  std::vector<Bf16> weight;
  std::vector<uint16_t> low;
  std::vector<float> exp_avg, exp_avg_sq, grad;
};

// Allows twice the error of running analysis: the kernel orders the same operations differently (m + (1−β)(g − m), and
// the bias correction after the square root), which costs at most as many roundings again.
void expect_near(float actual, Tracked expected, const char* what) {
  EXPECT_LE(std::abs(actual - expected.value), 2 * expected.error) << what << ": " << actual << " " << expected.value;
}

TEST(AdamwKernel, FollowsTheAlgorithmOverThreeStepsWithClippingAndDecay) {
  constexpr size_t kCount = 37;  // not a multiple of the lanes
  for (const Hyper& h : {Hyper{}, Hyper{.beta2 = 0.99, .weight_decay = 0, .grad_scale = 1}, Hyper{.eps = 1e-3}}) {
    State state(kCount);
    std::vector<Reference> reference(kCount);
    for (size_t i = 0; i < kCount; ++i) reference[i].master.value = state.master[i];
    for (int64_t step = 1; step <= 3; ++step) {
      state.grad = normals(kCount, static_cast<uint32_t>(10 + step));
      for (size_t i = 0; i < kCount; ++i) reference[i].step(h, step, state.grad[i]);
      state.step(h.at(step));
      for (size_t i = 0; i < kCount; ++i) {
        expect_near(state.exp_avg[i], reference[i].exp_avg, "first moment");
        expect_near(state.exp_avg_sq[i], reference[i].exp_avg_sq, "second moment");
        expect_near(state.master[i], reference[i].master, "master");
      }
    }
  }
}

TEST(AdamwKernel, TheFirstStepIsLrInTheGradientsDirection) {
  // m/bias1 = g and v/bias2 = g², so sign(g) remains, if 1 − β is computed before β is rounded to fp32.
  Hyper h;
  h.weight_decay = 0;
  h.eps = 0;
  State state(37);
  state.master.assign(37, 0.0f);  // so that all bits of the update are visible
  state.grad = normals(37, 5);
  const auto grad = state.grad;
  state.step(h.at(1));
  for (size_t i = 0; i < grad.size(); ++i) {
    // The roundings are those of the constants (lr, both corrections, both 1 − β), of g scaled and squared, and then of
    // a product or quotient each.
    EXPECT_LE(std::abs(state.master[i] + std::copysign(h.lr, grad[i])), error_bound(h.lr, 0, 16)) << grad[i];
  }
}

TEST(AdamwKernel, ZeroesTheGradientForTheNextStep) {
  State whole(19);
  whole.grad = normals(19, 6);
  SplitState split(whole);
  whole.step(Hyper{}.at(1));
  split.step(Hyper{}.at(1));
  EXPECT_EQ(whole.grad, std::vector<float>(19, 0.0f));
  EXPECT_EQ(split.grad, std::vector<float>(19, 0.0f));
}

TEST(AdamwKernel, InTwoHalvesTheMasterHasTheBitsOfTheWholeOneAsItIsStored) {
  constexpr size_t kCount = (1 << 17) + 5;  // this many values contain some ties under odd halves
  State whole(kCount);
  for (float& x : whole.master) x = storable_master(x);
  SplitState split(whole);
  int64_t moved = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    whole.grad = split.grad = normals(kCount, static_cast<uint32_t>(6 + step));
    whole.step(Hyper{}.at(step));
    split.step(Hyper{}.at(step));
    for (float& x : whole.master) {
      const float stored = storable_master(x);
      moved += stored != x;
      x = stored;
    }
    EXPECT_EQ(split.exp_avg, whole.exp_avg);
    EXPECT_EQ(split.exp_avg_sq, whole.exp_avg_sq);
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(split.master(i), whole.master[i]) << i;
      ASSERT_EQ(split.weight[i].bits, bf16_from_float(whole.master[i])) << i;
    }
  }
  EXPECT_GT(moved, 0);
}

TEST(AdamwKernel, CountsTheWeightsThatForwardSeesChange) {
  Hyper h;
  h.weight_decay = 0;
  State state(40);
  state.master.assign(40, 1.0f);
  for (size_t i = 0; i < 13; ++i) state.grad[i] = 1;
  const auto grad = state.grad;
  h.lr = 0x1p-12;  // below half an ULP of bf16 under one (2^-9), above that of fp32
  EXPECT_EQ(SplitState(state).step(h.at(1)), 0);
  EXPECT_EQ(State(state).step(h.at(1)), 13);
  h.lr = 0x1p-6;
  EXPECT_EQ(SplitState(state).step(h.at(1)), 13);
}

TEST(AdamwKernel, WithoutGradientOnlyDecays) {
  Hyper h;
  State state(21);
  const auto before = state.master;
  state.step(h.at(1));
  for (size_t i = 0; i < 21; ++i) {
    // The expected value is: lr · decay, one minus it, times the master, minus nothing.
    const double decayed = before[i] * (1 - double{static_cast<float>(h.lr)} * static_cast<float>(h.weight_decay));
    EXPECT_LE(std::abs(state.master[i] - decayed), error_bound(std::abs(decayed), 0, 3));
    EXPECT_EQ(state.exp_avg[i], 0.0f);
  }
}

TEST(AdamwKernel, OfNothingChangesNothing) {
  EXPECT_EQ(State(0).step(Hyper{}.at(1)), 0);
  EXPECT_EQ(SplitState(0).step(Hyper{}.at(1)), 0);
}

TEST(SumOfSquares, RoundsOnlyInDouble) {
  for (const int64_t n : {0, 1, 15, 16, 17, 4095, 4096, 4097, 20001}) {
    const auto x = normals(static_cast<size_t>(n), 8);
    long double exact = 0;
    for (const float value : x) exact += static_cast<long double>(value) * value;
    // Each lane makes one addition after the other, then the lanes are added as a tree; each addition may be off by
    // half an ulp of 2^-52.
    const auto additions = static_cast<double>(n / kLanes + 6);
    EXPECT_LE(std::abs(static_cast<double>(sum_of_squares(x.data(), n) - exact)),
              additions * 0x1p-53 * static_cast<double>(exact))
        << n;
  }
}

TEST(SumOfSquares, OfALongRunOfOnesIsExact) {
  const std::vector<float> ones(3 * 4096 + 7, 1.0f);
  EXPECT_EQ(sum_of_squares(ones.data(), static_cast<int64_t>(ones.size())), static_cast<double>(ones.size()));
}

}  // namespace
}  // namespace athanor::kernels::adamw_test
