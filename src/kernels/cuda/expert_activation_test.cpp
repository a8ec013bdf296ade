#include "kernels/expert_activation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cuda/expert_activation.h"
#include "kernels/cuda/testing/device.h"

namespace athanor::kernels::expert_activation_test {
namespace {

using namespace test;

class ExpertActivationOn : public OnEachPlace {};
ATHANOR_ON_EACH_PLACE(ExpertActivationOn);

const std::vector<int64_t> kChoices = {4, -1, 0, 2, -1, 1};  // choice 3 is an expert of another rank
constexpr int64_t kRows = 6, kChosen = 5, kMostRows = 9;     // a device has memory for more rows than there are

// Memory for all rows, of which the last ones stay as they are.
template <class T>
void expect_rows(const std::vector<T>& actual, std::vector<T> expected, int64_t width, const std::string& what) {
  const auto rest = garbage<T>((kMostRows - kRows) * width);
  expected.insert(expected.end(), rest.begin(), rest.end());
  expect_same_bits(actual, expected, what);
}

TEST_P(ExpertActivationOn, RoundsOnceWithAWeightAndWithoutAndLeavesPaddingZero) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t width : {1, 37, 64, 520}) {
      const auto gate = numbers<T>(kRows * width, 7, 12), up = numbers<T>(kRows * width, 8);
      const auto weights = numbers<float>(kChosen, 10);
      const auto g = put(gate), u = put(up);
      const auto w = put(weights);
      const auto c = put(kChoices), count = put(std::vector<int64_t>{kRows});
      for (const bool weighted : {false, true}) {
        const auto act = put(garbage<T>(kMostRows * width));
        const float* scale = weighted ? w.data() : nullptr;
        if (is_cpu()) {
          expert_activation(g.data(), u.data(), scale, c.data(), act.data(), 0, kRows, width);
        } else {
          cuda::expert_activation(stream(), g.data(), u.data(), scale, {c.data(), count.data(), kMostRows}, act.data(),
                                  width);
        }
        std::vector<T> expected(gate.size());
        for (int64_t i = 0; i < kRows * width; ++i) {
          const int64_t choice = kChoices[i / width];
          if (choice < 0) continue;
          const float product = load(gate[i]) * sigmoid(load(gate[i])) * load(up[i]);
          store(expected[i], weighted ? weights[choice] * product : product);
        }
        expect_rows(act.values(), expected, width, "act");
      }
    }
  });
}

TEST_P(ExpertActivationOn, BackwardGivesEachChoiceItsProductAndAllGradients) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t width : {1, 37, 64, 520}) {
      const int64_t n = kRows * width;
      const auto gate = numbers<T>(n, 7, 12), up = numbers<T>(n, 8), dout = numbers<T>(n, 9);
      const auto weights = numbers<float>(kChosen, 10);
      const auto g = put(gate), u = put(up), du = put(garbage<T>(kMostRows * width));
      const auto act = put(garbage<T>(kMostRows * width));
      auto dact = garbage<T>(kMostRows * width);
      std::copy(dout.begin(), dout.end(), dact.begin());
      const auto d = put(dact);
      const auto w = put(weights), dw = put(std::vector<float>(kChosen, 42.0f));
      const auto c = put(kChoices), count = put(std::vector<int64_t>{kRows});
      if (is_cpu()) {
        expert_activation_backward(g.data(), u.data(), d.data(), du.data(), act.data(), w.data(), c.data(), dw.data(),
                                   0, kRows, width);
      } else {
        cuda::expert_activation_backward(stream(), g.data(), u.data(), d.data(), du.data(), act.data(), w.data(),
                                         {c.data(), count.data(), kMostRows}, dw.data(), width);
      }
      std::vector<T> y(gate.size()), dgate(gate.size()), dup(gate.size());
      const auto dweights = dw.values();
      EXPECT_EQ(dweights[3], 42.0f) << "an ignored choice was written";
      for (int64_t r = 0; r < kRows; ++r) {
        if (kChoices[r] < 0) continue;
        const float weight = weights[kChoices[r]];
        double exact = 0, norm = 0;
        for (int64_t i = r * width; i < (r + 1) * width; ++i) {
          const float gi = load(gate[i]), ui = load(up[i]), s = sigmoid(gi), silu = gi * s;
          const float weighted = weight * load(dout[i]);
          store(y[i], weight * (silu * ui));
          store(dup[i], weighted * silu);
          store(dgate[i], weighted * ui * (s + silu * (1.0f - s)));
          const double term = double{gi} * ui / (1 + std::exp(-double{gi})) * load(dout[i]);
          exact += term;
          norm += std::abs(term);
        }
        // The activation's own roundings are four of the exponential, three of σ, and two products.
        ASSERT_LE(std::abs(dweights[kChoices[r]] - exact), error_bound(norm, 0, width + 9)) << "row " << r;
      }
      expect_rows(act.values(), y, width, "act");
      expect_rows(d.values(), dgate, width, "dgate");
      expect_rows(du.values(), dup, width, "dup");
    }
  });
}

TEST_P(ExpertActivationOn, AnotherUnitThanSwiGluHasTheValuesOfItsFormulaAndNoGradientWhereItIsClamped) {
  constexpr GatedUnit kUnit{.slope = 1.702F, .limit = 1.5F, .offset = 1};
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    const int64_t width = 37, n = kRows * width;
    const auto gate = numbers<T>(n, 7, 4), up = numbers<T>(n, 8, 4), dout = numbers<T>(n, 9);
    const auto weights = numbers<float>(kChosen, 10);
    const auto g = put(gate), u = put(up), act = put(garbage<T>(kMostRows * width)),
               du = put(garbage<T>(kMostRows * width));
    auto dact = garbage<T>(kMostRows * width);
    std::copy(dout.begin(), dout.end(), dact.begin());
    const auto d = put(dact);
    const auto w = put(weights), dw = put(std::vector<float>(kChosen, 42.0f));
    const auto c = put(kChoices), count = put(std::vector<int64_t>{kRows});
    if (is_cpu()) {
      expert_activation_backward(g.data(), u.data(), d.data(), du.data(), act.data(), w.data(), c.data(), dw.data(), 0,
                                 kRows, width, kUnit);
    } else {
      cuda::expert_activation_backward(stream(), g.data(), u.data(), d.data(), du.data(), act.data(), w.data(),
                                       {c.data(), count.data(), kMostRows}, dw.data(), width, kUnit);
    }
    std::vector<T> y(gate.size()), dgate(gate.size()), dup(gate.size());
    int64_t clamped = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (kChoices[i / width] < 0) continue;
      const float weight = weights[kChoices[i / width]], weighted = weight * load(dout[i]);
      const bool high = load(gate[i]) > 1.5F, beyond = std::abs(load(up[i])) > 1.5F;
      const float gi = high ? 1.5F : load(gate[i]), s = sigmoid(1.702F * gi), silu = gi * s;
      const float factor = (beyond ? std::copysign(1.5F, load(up[i])) : load(up[i])) + 1;
      store(y[i], weight * (silu * factor));
      store(dup[i], weighted * silu * (beyond ? 0.0F : 1.0F));
      store(dgate[i], weighted * factor * (high ? 0.0F : s + 1.702F * silu * (1.0F - s)));
      clamped += high && beyond;
    }
    EXPECT_GT(clamped, 0);
    expect_rows(act.values(), y, width, "act");
    expect_rows(d.values(), dgate, width, "dgate");
    expect_rows(du.values(), dup, width, "dup");
    if (is_cpu()) {
      expert_activation(g.data(), u.data(), w.data(), c.data(), act.data(), 0, kRows, width, kUnit);
    } else {
      cuda::expert_activation(stream(), g.data(), u.data(), w.data(), {c.data(), count.data(), kMostRows}, act.data(),
                              width, kUnit);
    }
    expect_rows(act.values(), y, width, "act of forward");
  });
}

}  // namespace
}  // namespace athanor::kernels::expert_activation_test
