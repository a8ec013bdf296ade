#include "kernels/cuda/cross_entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/cuda/testing/device.h"

namespace athanor::kernels::cross_entropy_test {
namespace {

using namespace test;

class CrossEntropyOn : public OnEachPlace {
 protected:
  template <class T>
  struct Result {
    std::vector<float> losses;
    std::vector<uint8_t> is_greedy;
    std::vector<T> gradient;
  };
  template <class T>
  Result<T> run(const std::vector<T>& logits, const std::vector<int64_t>& targets, float grad_scale) {
    static_assert(sizeof(bool) == 1);
    const auto rows = static_cast<int64_t>(targets.size()), vocab = static_cast<int64_t>(logits.size()) / rows;
    const auto work = put(logits);
    const auto ids = put(targets);
    const auto losses = put(garbage<float>(rows));
    const auto greedy = put(std::vector<uint8_t>(targets.size(), 7));
    auto* is_greedy = reinterpret_cast<bool*>(greedy.data());
    if (is_cpu()) {
      cross_entropy(work.data(), ids.data(), losses.data(), is_greedy, rows, vocab, grad_scale);
    } else {
      cuda::cross_entropy(stream(), work.data(), ids.data(), losses.data(), is_greedy, rows, vocab, grad_scale);
    }
    return {losses.values(), greedy.values(), work.values()};
  }
};
ATHANOR_ON_EACH_PLACE(CrossEntropyOn);

TEST_P(CrossEntropyOn, LossAndGradientAreThoseOfTheFormula) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t vocab : {1, 7, 64, 1023, 9000}) {
      constexpr int64_t kRows = 5;
      const auto logits = numbers<T>(kRows * vocab, 1, 8);
      const std::vector<int64_t> targets = {0, vocab / 2, kNoTarget, vocab - 1, vocab / 3};
      const float scale = 0.125f;
      const auto result = run(logits, targets, scale);
      for (int64_t row = 0; row < kRows; ++row) {
        const T* x = logits.data() + row * vocab;
        const T* dx = result.gradient.data() + row * vocab;
        if (targets[row] == kNoTarget) {
          EXPECT_EQ(result.losses[row], 0.0f);
          EXPECT_FALSE(result.is_greedy[row]);
          for (int64_t i = 0; i < vocab; ++i) ASSERT_EQ(load(dx[i]), 0.0f);
          continue;
        }
        double peak = load(x[0]), total = 0;
        for (int64_t i = 0; i < vocab; ++i) peak = std::max(peak, double{load(x[i])});
        for (int64_t i = 0; i < vocab; ++i) total += std::exp(load(x[i]) - peak);
        // Relative to the total, the errors are: 4 roundings of each exponential (2 ULP), that of its argument (one of
        // at most 16, which e^x turns into 16 relative ones), those of the sum and of the logarithm.
        const double of_total = sum_error(vocab + 4 + 16);
        const double loss = peak - load(x[targets[row]]) + std::log(total);
        ASSERT_LE(std::abs(result.losses[row] - loss), of_total + error_bound(std::abs(loss) + 16, 0, 4)) << vocab;
        for (int64_t i = 0; i < vocab; ++i) {
          const double p = std::exp(load(x[i]) - peak) / total, hit = i == targets[row] ? 1 : 0;
          ASSERT_LE(std::abs(load(dx[i]) - (p - hit) * scale),
                    scale * error_bound(p + hit, kRoundoff<T>, 2 * (vocab + 20) + 3))
              << i << " of " << vocab;
        }
      }
    }
  });
}

TEST_P(CrossEntropyOn, GreedyMeansTheFirstOfTheLargest) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t vocab : {5, 40, 2050}) {
      std::vector<T> logits(static_cast<size_t>(vocab));
      for (T& x : logits) store(x, -1.0f);
      for (const int64_t at : {vocab / 3, vocab / 2, vocab - 1}) store(logits[at], 4.0f);
      for (int64_t target = 0; target < vocab; ++target) {
        if (vocab > 1000 && target % 97 != 0 && target != vocab / 3 && target != vocab / 2) continue;
        EXPECT_EQ(run(logits, {target}, 0).is_greedy[0], target == vocab / 3) << target << " of " << vocab;
      }
    }
  });
}

TEST_P(CrossEntropyOn, WithoutAScaleLeavesTheLogitsAlone) {
  const auto logits = numbers<Bf16>(3 * 72, 2, 4);
  expect_same_bits(run(logits, {1, kNoTarget, 71}, 0).gradient, logits, "logits");
}

TEST_P(CrossEntropyOn, HugeLogitsAreFiniteAndANanLogitMakesTheLossNan) {
  EXPECT_EQ(run<float>({1e30f, -1e30f, 0, 200, -200, 100}, {0, 0}, 1).losses, (std::vector<float>{0, 0}));
  for (size_t at = 0; at < 20; ++at) {
    std::vector<float> logits(20, 1.0f);
    logits[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(run(logits, {3}, 1.0f).losses[0])) << at;
  }
}

TEST_P(CrossEntropyOn, AWrongTargetHasTheLossNanAndNoGradient) {
  if (is_cpu()) GTEST_SKIP() << "the op refuses it on the CPU";
  for (const int64_t vocab : {7, 64}) {
    const auto logits = numbers<float>(3 * vocab, 1, 4);
    const auto result = run(logits, {vocab, 3, -1}, 0.5f), right = run(logits, {kNoTarget, 3, kNoTarget}, 0.5f);
    EXPECT_TRUE(std::isnan(result.losses[0]) && std::isnan(result.losses[2]));
    EXPECT_EQ(result.losses[1], right.losses[1]);
    EXPECT_EQ(result.is_greedy, right.is_greedy);
    expect_same_bits(result.gradient, right.gradient, "gradient");
  }
}

TEST_P(CrossEntropyOn, LossesAreAddedInFp64) {
  if (is_cpu()) GTEST_SKIP() << "the op adds them itself on the CPU";
  for (const int64_t count : {0, 1, 1000, 5000}) {
    const auto losses = numbers<float>(count, 1, 9);
    double expected = 0, norm = 0;
    for (const float loss : losses) expected += loss, norm += std::abs(loss);
    const auto from = put(losses);
    const auto sum = put(std::vector<double>{7});
    cuda::sum_losses(stream(), from.data(), count, sum.data());
    EXPECT_LE(std::abs(sum.values()[0] - expected), 2 * norm * static_cast<double>(count) * kRoundoffFp64) << count;
  }
}

TEST_P(CrossEntropyOn, TheFirstBadTargetIsFound) {
  if (is_cpu()) GTEST_SKIP() << "the op looks itself on the CPU";
  const auto find = [&](std::vector<int64_t> targets) {
    const auto ids = put(targets), bad = put(std::vector<int64_t>{7});
    cuda::find_bad_target(stream(), ids.data(), static_cast<int64_t>(targets.size()), 10, bad.data());
    return bad.values()[0];
  };
  std::vector<int64_t> targets(3000, 9);
  targets[5] = kNoTarget;
  EXPECT_EQ(find(targets), -1);
  targets[2500] = 10;
  targets[1100] = -1;
  EXPECT_EQ(find(targets), 1100);
  targets[0] = -7;
  EXPECT_EQ(find(targets), 0);
  EXPECT_EQ(find({}), -1);
}

}  // namespace
}  // namespace athanor::kernels::cross_entropy_test
