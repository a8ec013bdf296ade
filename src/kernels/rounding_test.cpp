// Every kernel that stores bf16 rounds its fp32 result once, to nearest, ties to even. The fused forms of the router's
// probability stay within a stated number of ULPs of the unfused ones.
//
// For operands that bf16 can represent, the bf16 form of a kernel computes what its fp32 form computes and then stores
// it. So each result must be the fp32 form's, rounded by the rounding below, which does not use bits.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/expert_activation.h"
#include "kernels/gemm_tile.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/routing.h"
#include "kernels/swiglu.h"

namespace athanor::kernels::rounding_test {
namespace {

// A value just below the middle of 0.56640625 and 0.5703125: two ulps of fp32 under a tie.
constexpr float kNearHalfway = 0.5683592558f;

// Rounds to nearest even at 8 significant bits, by the arithmetic of double (exact here: 24 bits and powers of two).
float rounded(float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(double{x}, &exponent);
  const double ulp = std::ldexp(1.0, exponent - 8);
  return static_cast<float>(std::nearbyint(x / ulp) * ulp);
}

// Returns the distance of two values in representable numbers.
int64_t ulps_apart(Bf16 a, Bf16 b) {
  const auto place = [](Bf16 x) { return x.bits & 0x8000 ? -int64_t{x.bits & 0x7FFF} : int64_t{x.bits}; };
  return std::abs(place(a) - place(b));
}

Bf16 bf16(float x) {
  Bf16 result{};
  store(result, x);
  return result;
}

// Numbers of bf16 as both types.
struct Pair {
  explicit Pair(size_t n) : narrow(n), wide(n) {}
  Pair(size_t n, uint32_t seed, float scale = 1) : Pair(n) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < n; ++i) set(i, normal(random) * scale);
  }
  void set(size_t i, float x) {
    narrow[i] = bf16(x);
    wide[i] = load(narrow[i]);
  }
  std::vector<Bf16> narrow;
  std::vector<float> wide;
};

void expect_rounded(const Pair& results, const char* what) {
  for (size_t i = 0; i < results.narrow.size(); ++i)
    ASSERT_EQ(load(results.narrow[i]), rounded(results.wide[i])) << what << " " << i << " " << results.wide[i];
}

constexpr int64_t kRows = 40, kWidth = 200;
constexpr size_t kCount = kRows * kWidth;

TEST(Rounding, OfACastIsToNearestEvenNearEveryHalfway) {
  EXPECT_EQ(load(bf16(kNearHalfway)), 0.56640625f);
  EXPECT_EQ(load(bf16(0.568359375f)), 0.5703125f);  // the tie itself: up, to the even one
  for (uint32_t high = 0; high < 0x7F80; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7FFEu, 0x7FFFu, 0x8000u, 0x8001u, 0x8002u, 0xFFFFu}) {
      const float x = std::bit_cast<float>(high << 16 | low);
      if (high == 0x7F7F && low >= 0x8000) {
        ASSERT_TRUE(std::isinf(load(bf16(x))));
      } else if (high >= 0x0100) {  // numbers whose ulp is that of normal numbers: `rounded` does not handle smaller
                                    // ones
        ASSERT_EQ(load(bf16(x)), rounded(x)) << std::hexfloat << x;
        ASSERT_EQ(load(bf16(-x)), -rounded(x)) << std::hexfloat << x;
      }
    }
  }
}

TEST(Rounding, OfSwigluIsOnce) {
  const Pair gate(kCount, 1, 2), up(kCount, 2), dout(kCount, 3);
  Pair out(kCount), dgate(kCount), dup(kCount);
  swiglu_forward(gate.narrow.data(), up.narrow.data(), out.narrow.data(), kCount);
  swiglu_forward(gate.wide.data(), up.wide.data(), out.wide.data(), kCount);
  expect_rounded(out, "out");
  swiglu_backward(dout.narrow.data(), gate.narrow.data(), up.narrow.data(), dgate.narrow.data(), dup.narrow.data(),
                  kCount);
  swiglu_backward(dout.wide.data(), gate.wide.data(), up.wide.data(), dgate.wide.data(), dup.wide.data(), kCount);
  expect_rounded(dgate, "dgate");
  expect_rounded(dup, "dup");
}

TEST(Rounding, OfNormsIsOnce) {
  const Pair x(kCount, 1, 3), w(kWidth, 2), dy(kCount, 3);
  Pair y(kCount), dx(kCount);
  std::vector<float> rstd(kRows), mean(kRows), dw(kWidth);
  rms_norm_forward(x.narrow.data(), w.narrow.data(), y.narrow.data(), rstd.data(), kRows, kWidth, 1e-5f);
  rms_norm_forward(x.wide.data(), w.wide.data(), y.wide.data(), rstd.data(), kRows, kWidth, 1e-5f);
  expect_rounded(y, "rms y");
  rms_norm_backward(dy.narrow.data(), x.narrow.data(), w.narrow.data(), rstd.data(), dx.narrow.data(), dw.data(), kRows,
                    kWidth);
  rms_norm_backward(dy.wide.data(), x.wide.data(), w.wide.data(), rstd.data(), dx.wide.data(), dw.data(), kRows,
                    kWidth);
  expect_rounded(dx, "rms dx");
  layer_norm_forward(x.narrow.data(), y.narrow.data(), mean.data(), rstd.data(), kRows, kWidth, 1e-5f);
  layer_norm_forward(x.wide.data(), y.wide.data(), mean.data(), rstd.data(), kRows, kWidth, 1e-5f);
  expect_rounded(y, "layer y");
  layer_norm_backward(dy.narrow.data(), x.narrow.data(), mean.data(), rstd.data(), dx.narrow.data(), kRows, kWidth);
  layer_norm_backward(dy.wide.data(), x.wide.data(), mean.data(), rstd.data(), dx.wide.data(), kRows, kWidth);
  expect_rounded(dx, "layer dx");
}

TEST(Rounding, OfRotationIsOnceNearHalfwayToo) {
  const int64_t half = kWidth / 2;
  Pair x(kCount, 1), y(kCount);
  std::vector<float> cos(static_cast<size_t>(kRows * half)), sin(cos.size());
  for (size_t i = 0; i < cos.size(); ++i) {
    const auto angle = static_cast<float>(i) * 0.37f;
    // a·1 − b·s: the result is near 1 and half an ulp of a away from it, or a little more or less.
    const bool near = i % 2 == 0;
    cos[i] = near ? 1.0f : std::cos(angle);
    sin[i] = near ? 0x1p-8f * (1 + static_cast<float>(static_cast<int>(i % 5) - 2) * 0x1p-20f) : std::sin(angle);
  }
  rope(x.narrow.data(), y.narrow.data(), cos.data(), sin.data(), kRows, 1, kWidth, 1.0f);
  rope(x.wide.data(), y.wide.data(), cos.data(), sin.data(), kRows, 1, kWidth, 1.0f);
  expect_rounded(y, "rope");
}

TEST(Rounding, OfTheCombineAndOfTilesIsOnce) {
  constexpr int64_t kChoices = 2;
  const Pair y(kCount, 1);
  Pair out(kCount / 2);
  std::vector<float> weights(kRows);
  std::vector<int64_t> row_of_choice(kRows);
  for (size_t i = 0; i < kRows; ++i) {
    weights[i] = i % 2 == 0 ? kNearHalfway : 1 - kNearHalfway;
    row_of_choice[i] = static_cast<int64_t>((i * 7) % kRows);
  }
  combine_rows(y.narrow.data(), weights.data(), row_of_choice.data(), out.narrow.data(), 0, kRows / 2, kChoices,
               kWidth);
  combine_rows(y.wide.data(), weights.data(), row_of_choice.data(), out.wide.data(), 0, kRows / 2, kChoices, kWidth);
  expect_rounded(out, "combine");

  std::vector<float> tile(kTileRows * kTileColumns);
  for (size_t i = 0; i < tile.size(); ++i) tile[i] = kNearHalfway * (1 + static_cast<float>(i) * 0x1p-20f);
  Pair stored(tile.size());
  store_tile(tile.data(), kTileRows, kTileColumns, stored.narrow.data(), kTileColumns);
  stored.wide = tile;
  expect_rounded(stored, "tile");
}

// Activations with fp32 products within a few ulps of fp32 of the middle between two bf16.
struct NearHalfway {
  NearHalfway() : gate(kCount, 1, 2), up(kCount, 2), act(kCount), weights(kCount), choices(kCount) {
    swiglu_forward(gate.wide.data(), up.wide.data(), act.data(), kCount);
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(0.01f, 1.0f);
    for (size_t i = 0; i < kCount; ++i) {
      choices[i] = static_cast<int64_t>(i);
      const float wanted = uniform(random) * act[i];
      const uint32_t middle = (std::bit_cast<uint32_t>(wanted) & 0xFFFF0000u) | 0x8000u;
      const float product = std::bit_cast<float>(middle + static_cast<uint32_t>(i % 7) - 3);
      weights[i] = i % 10 == 0 ? kNearHalfway : product / act[i];
    }
  }
  Pair gate, up;
  std::vector<float> act, weights;
  std::vector<int64_t> choices;
};

TEST(Rounding, OfSwigluTimesProbabilityIsOnceNearHalfwayToo) {
  const NearHalfway in;
  std::vector<Bf16> fused(kCount);  // rows of one element, each with its own probability
  expert_activation(in.gate.narrow.data(), in.up.narrow.data(), in.weights.data(), in.choices.data(), fused.data(), 0,
                    kCount, 1);
  int64_t near = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const float product = in.weights[i] * in.act[i];
    const auto low = static_cast<int64_t>(std::bit_cast<uint32_t>(product) & 0xFFFF);
    near += std::abs(low - 0x8000) <= 4;
    ASSERT_EQ(load(fused[i]), rounded(product)) << i << " " << product;
  }
  EXPECT_GT(near, static_cast<int64_t>(kCount) / 2);
}

TEST(Rounding, OfAProbabilityAppliedToOneIsTheProbabilitysOwn) {
  // silu(128) = 128 to all bits of fp32, times 2^-7: the activation is exactly 1.
  const Bf16 gate = bf16(128.0f), up = bf16(0x1p-7f);
  const float weight = kNearHalfway;
  const int64_t choice = 0;
  Bf16 act{};
  expert_activation(&gate, &up, &weight, &choice, &act, 0, 1, 1);
  EXPECT_EQ(load(act), 0.56640625f);
}

// Before the down projection, the product is rounded once. After it (here the down projection is one and only passes
// the activation on), the activation is rounded, then its product with the probability. The first rounding moves the
// product by less than one ulp (2^-8 of it), and each result's own rounding by half of one. Two numbers of bf16 less
// than two ulps apart are neighbours.
TEST(Rounding, ProbabilityBeforeAndAfterTheDownProjectionAreAtMostOneUlpApart) {
  const NearHalfway in;
  std::vector<Bf16> before(kCount), act(kCount), after(kCount);
  expert_activation(in.gate.narrow.data(), in.up.narrow.data(), in.weights.data(), in.choices.data(), before.data(), 0,
                    kCount, 1);
  swiglu_forward(in.gate.narrow.data(), in.up.narrow.data(), act.data(), kCount);
  combine_rows(act.data(), in.weights.data(), in.choices.data(), after.data(), 0, kCount, 1, 1);
  int64_t differ = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const int64_t apart = ulps_apart(before[i], after[i]);
    differ += apart > 0;
    ASSERT_LE(apart, 1) << i << " " << load(before[i]) << " " << load(after[i]);
  }
  EXPECT_GT(differ, 0);  // otherwise nothing was tested
}

TEST(Rounding, TheGradientsOfSwigluTimesProbabilityAreAtMostOneUlpFromTheUnfusedOnes) {
  // In the unfused form the incoming gradient times the probability is rounded, then it goes through SwiGLU's backward.
  // dup is a product and has the bound above; dgate is also a product, of d·u and the slope.
  const NearHalfway in;
  const Pair dout(kCount, 4);
  std::vector<Bf16> dgate = dout.narrow, dup(kCount), act(kCount), weighted(kCount), dgate2(kCount), dup2(kCount);
  std::vector<float> dweights(kCount);
  expert_activation_backward(in.gate.narrow.data(), in.up.narrow.data(), dgate.data(), dup.data(), act.data(),
                             in.weights.data(), in.choices.data(), dweights.data(), 0, kCount, 1);
  for (size_t i = 0; i < kCount; ++i) weighted[i] = bf16(in.weights[i] * dout.wide[i]);
  swiglu_backward(weighted.data(), in.gate.narrow.data(), in.up.narrow.data(), dgate2.data(), dup2.data(), kCount);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_LE(ulps_apart(dup[i], dup2[i]), 1) << i;
    ASSERT_LE(ulps_apart(dgate[i], dgate2[i]), 1) << i;
  }
}

}  // namespace
}  // namespace athanor::kernels::rounding_test
