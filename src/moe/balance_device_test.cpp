// The rules of balancing as kernels of a device, whose bodies run on the host here, compared with those of the CPU.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cuda/balance.h"
#include "moe/balance.h"

namespace athanor::moe::balance_device_test {
namespace {

namespace cuda = kernels::cuda;
using Ids = std::vector<int64_t>;

// Tokens draw k different experts; the larger `skew`, the more of them choose the first experts.
Ids random_choices(std::mt19937_64& random, const cuda::ChoiceGroups& in, double skew) {
  Ids ids;
  std::exponential_distribution<double> draw;
  std::vector<std::pair<double, int64_t>> order(static_cast<size_t>(in.num_experts));
  for (int64_t t = 0; t < in.groups * in.tokens; ++t) {
    for (int64_t e = 0; e < in.num_experts; ++e)
      order[static_cast<size_t>(e)] = {draw(random) * std::exp(skew * static_cast<double>(e)), e};
    std::partial_sort(order.begin(), order.begin() + in.k, order.end());
    for (int64_t j = 0; j < in.k; ++j) ids.push_back(order[static_cast<size_t>(j)].second);
  }
  return ids;
}

Ids on_device(const Ids& chosen, const cuda::ChoiceGroups& in) {
  Ids ids(chosen.size(), -7), space(static_cast<size_t>(cuda::swipe_workspace(in)), -7);
  cuda::swipe(cuda::Stream::host(), chosen.data(), ids.data(), space.data(), in);
  return ids;
}

Ids on_cpu(Ids ids, const cuda::ChoiceGroups& in) {
  const auto size = static_cast<size_t>(in.choices());
  for (size_t g = 0; g < static_cast<size_t>(in.groups); ++g)
    balance_group({.kind = Balance::kSwipe}, std::span(ids).subspan(g * size, size), {}, in.k, in.num_experts);
  return ids;
}

TEST(SwipeOnDevice, MakesTheChoicesOfTheCpuWhateverIsChosen) {
  std::mt19937_64 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 600; ++round) {
    cuda::ChoiceGroups in{1 + below(3), 1 + below(60), 0, 1 + below(24)};
    in.k = 1 + below(in.num_experts);
    while (in.choices() % in.num_experts != 0) ++in.tokens;
    const Ids chosen = random_choices(random, in, static_cast<double>(below(4)) * 0.5);
    ASSERT_EQ(on_device(chosen, in), on_cpu(chosen, in))
        << in.tokens << " tokens, k " << in.k << ", " << in.num_experts << " experts, round " << round;
  }
}

TEST(SwipeOnDevice, MakesTheChoicesOfTheCpuInLargeGroupsAndInTheWorstCase) {
  std::mt19937_64 random(2);
  for (const cuda::ChoiceGroups& in :
       {cuda::ChoiceGroups{2, 2048, 8, 64}, {1, 1024, 1, 16}, {1, 640, 4, 320}, {1, 4096, 7, 8}}) {
    const Ids chosen = random_choices(random, in, 0.05);
    EXPECT_EQ(on_device(chosen, in), on_cpu(chosen, in));
    Ids same;  // every token names the same experts, so all others have to be filled
    for (int64_t c = 0; c < in.groups * in.choices(); ++c) same.push_back(in.num_experts - 1 - c % in.k);
    EXPECT_EQ(on_device(same, in), on_cpu(same, in));
  }
}

}  // namespace
}  // namespace athanor::moe::balance_device_test
