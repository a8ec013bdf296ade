#include "kernels/expert_activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/swiglu.h"

namespace athanor::kernels::expert_activation_test {
namespace {

constexpr int64_t kRows = 5, kWidth = 37;
const std::vector<int64_t> kChoices = {3, 0, -1, 2, 1};  // row 2 is padding
const std::vector<float> kWeights = {0.5683592558f, 0.25f, 1.0f, 0.001f};

template <class T>
std::vector<T> values(uint32_t seed) {
  std::vector<T> x(kRows * kWidth);
  std::minstd_rand random(seed);
  std::normal_distribution<float> normal;
  for (T& v : x) store(v, normal(random));
  return x;
}

double silu(double g) { return g / (1 + std::exp(-g)); }

// One rounding to T, and the error of sigmoid's fp32 form (exp to 2 ULP, a division and three products).
template <class T>
double bound(double result) {
  return std::abs(result) * (std::ldexp(1.0, sizeof(T) == 2 ? -8 : -24) + 8 * std::ldexp(1.0, -24)) + 1e-37;
}

template <class T>
class ExpertActivation : public testing::Test {
 protected:
  std::vector<T> gate_ = values<T>(1), up_ = values<T>(2), dact_ = values<T>(3);
};
using Elements = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(ExpertActivation, Elements);

TYPED_TEST(ExpertActivation, WithoutWeightsHasTheBitsOfSwiglu) {
  std::vector<TypeParam> act(kRows * kWidth), plain(kRows * kWidth);
  expert_activation<TypeParam>(this->gate_.data(), this->up_.data(), nullptr, kChoices.data(), act.data(), 0, kRows,
                               kWidth);
  swiglu_forward(this->gate_.data(), this->up_.data(), plain.data(), kRows * kWidth);
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(load(act[at]), i / kWidth == 2 ? 0.0f : load(plain[at]));
  }
}

TYPED_TEST(ExpertActivation, WithWeightsIsRoundedOnce) {
  std::vector<TypeParam> act(kRows * kWidth);
  expert_activation<TypeParam>(this->gate_.data(), this->up_.data(), kWeights.data(), kChoices.data(), act.data(), 0,
                               kRows, kWidth);
  for (int64_t i = 0; i < kRows * kWidth; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t choice = kChoices[static_cast<size_t>(i / kWidth)];
    const double w = choice < 0 ? 0 : kWeights[static_cast<size_t>(choice)];
    const double exact = w * silu(load(this->gate_[at])) * load(this->up_[at]);
    EXPECT_NEAR(load(act[at]), exact, bound<TypeParam>(exact));
  }
}

TYPED_TEST(ExpertActivation, BackwardIsTheDerivativeOfTheWeightedProduct) {
  std::vector<TypeParam> dgate = this->dact_, dup(kRows * kWidth), act(kRows * kWidth);
  std::vector<float> dweights(kWeights.size(), -1.0f);
  expert_activation_backward<TypeParam>(this->gate_.data(), this->up_.data(), dgate.data(), dup.data(), act.data(),
                                        kWeights.data(), kChoices.data(), dweights.data(), 0, kRows, kWidth);
  for (int64_t r = 0; r < kRows; ++r) {
    const int64_t choice = kChoices[static_cast<size_t>(r)];
    const double w = choice < 0 ? 0 : kWeights[static_cast<size_t>(choice)];
    double dweight = 0, norm = 0;
    for (int64_t i = r * kWidth; i < (r + 1) * kWidth; ++i) {
      const auto at = static_cast<size_t>(i);
      const double g = load(this->gate_[at]), u = load(this->up_[at]), d = load(this->dact_[at]);
      const double s = 1 / (1 + std::exp(-g)), slope = s + g * s * (1 - s);
      EXPECT_NEAR(load(act[at]), w * silu(g) * u, bound<TypeParam>(w * silu(g) * u));
      EXPECT_NEAR(load(dup[at]), w * d * silu(g), bound<TypeParam>(w * d * silu(g)));
      // The two terms of the slope may cancel.
      EXPECT_NEAR(load(dgate[at]), w * d * u * slope, bound<TypeParam>(w * d * u * (s + std::abs(g) * s)));
      dweight += silu(g) * u * d;
      norm += std::abs(silu(g) * u * d);
    }
    if (choice >= 0) {
      EXPECT_NEAR(dweights[static_cast<size_t>(choice)], dweight, norm * 48 * std::ldexp(1.0, -24));
    }
  }
}

}  // namespace
}  // namespace athanor::kernels::expert_activation_test
