#include "kernels/cuda/adamw.h"

#include <gtest/gtest.h>

#include "kernels/cuda/testing/device.h"
#include "kernels/master.h"

namespace athanor::kernels::adamw_test {
namespace {

using namespace test;

class AdamwOnCuda : public OnEachPlace {};
ATHANOR_ON_CUDA_PLACES(AdamwOnCuda);

constexpr int64_t kSizes[] = {0, 1, 37, 256, 4 * 8 * 256 + 4, 20003};

AdamwStep step_of(double step) {
  AdamwStep s{};
  s.lr = 1e-2f;
  s.eps = 1e-8f;
  s.weight_decay = 0.1f;
  s.beta1 = 0.9;
  s.beta2 = 0.999;
  s.bias_correction1 = static_cast<float>(1 - std::pow(s.beta1, step));
  s.bias_correction2 = static_cast<float>(1 - std::pow(s.beta2, step));
  s.grad_scale = 0.5f;
  return s;
}

TEST_P(AdamwOnCuda, AStepHasTheBitsOfTheCpusAndCountsTheSameChanges) {
  for (const int64_t n : kSizes) {
    auto master = numbers<float>(n, 1), m = numbers<float>(n, 2), v = numbers<float>(n, 3), grad = numbers<float>(n, 4);
    for (float& x : v) x = std::abs(x);
    for (size_t i = 0; i < grad.size(); i += 3) grad[i] = m[i] = master[i] = 0;  // these do not change
    const auto on_master = put(master), on_m = put(m), on_v = put(v), on_grad = put(grad);
    const auto changed = put(std::vector<int64_t>{100});
    cuda::adamw(stream(), step_of(3), on_master.data(), on_m.data(), on_v.data(), on_grad.data(), n, changed.data());
    const int64_t count = adamw(step_of(3), master.data(), m.data(), v.data(), grad.data(), n);
    EXPECT_EQ(changed.values()[0], 100 + count);
    expect_same_bits(on_master.values(), master, "master");
    expect_same_bits(on_m.values(), m, "first moment");
    expect_same_bits(on_v.values(), v, "second moment");
    expect_same_bits(on_grad.values(), grad, "gradient");
  }
}

TEST_P(AdamwOnCuda, ASplitMasterHasTheBitsOfTheCpus) {
  for (const int64_t n : kSizes) {
    std::vector<Bf16> weight(static_cast<size_t>(n));
    std::vector<uint16_t> low(weight.size());
    const auto master = numbers<float>(n, 5);
    for (size_t i = 0; i < weight.size(); ++i) split_master(master[i], weight[i], low[i]);
    auto m = numbers<float>(n, 6, 1e-3f), v = numbers<float>(n, 7), grad = numbers<float>(n, 8);
    for (float& x : v) x = std::abs(x);
    const auto on_weight = put(weight);
    const auto on_low = put(low);
    const auto on_m = put(m), on_v = put(v), on_grad = put(grad);
    const auto changed = put(std::vector<int64_t>{0});
    cuda::adamw(stream(), step_of(2), on_weight.data(), on_low.data(), on_m.data(), on_v.data(), on_grad.data(), n,
                changed.data());
    const int64_t count = adamw(step_of(2), weight.data(), low.data(), m.data(), v.data(), grad.data(), n);
    EXPECT_EQ(changed.values()[0], count);
    expect_same_bits(on_weight.values(), weight, "weight");
    EXPECT_EQ(on_low.values(), low);
    expect_same_bits(on_m.values(), m, "first moment");
    expect_same_bits(on_v.values(), v, "second moment");
    expect_same_bits(on_grad.values(), grad, "gradient");
  }
}

TEST_P(AdamwOnCuda, TheSumOfSquaresIsThatOfDoubles) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{300}, int64_t{65536}, int64_t{200001}}) {
    const auto x = numbers<float>(n, 9);
    double exact = 0;
    for (const float value : x) exact += double{value} * value;
    const auto from = put(x);
    const auto partials = put(garbage<double>(cuda::sum_of_squares_partials(n))), out = put(garbage<double>(1));
    cuda::sum_of_squares(stream(), from.data(), n, partials.data(), out.data());
    EXPECT_LE(std::abs(out.values()[0] - exact), exact * static_cast<double>(n) * kRoundoffFp64 * 2) << n;
  }
}

}  // namespace
}  // namespace athanor::kernels::adamw_test
