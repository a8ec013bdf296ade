#include "kernels/cuda/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "kernels/cuda/testing/device.h"

namespace athanor::kernels::balance_test {
namespace {

using namespace test;
using cuda::ChoiceGroups;
using Ids = std::vector<int64_t>;

class BalanceOn : public OnEachPlace {};
ATHANOR_ON_CUDA_PLACES(BalanceOn);

// Different experts for each token; the lower ones are chosen more often.
Ids random_choices(const ChoiceGroups& in, unsigned salt) {
  Ids ids;
  const auto draws = numbers<float>(in.groups * in.tokens * in.num_experts, salt);
  for (int64_t t = 0; t < in.groups * in.tokens; ++t) {
    std::vector<std::pair<float, int64_t>> order;
    for (int64_t e = 0; e < in.num_experts; ++e) {
      const float skew = static_cast<float>(e) / static_cast<float>(in.num_experts);
      order.emplace_back(draws[static_cast<size_t>(t * in.num_experts + e)] + skew, e);
    }
    std::sort(order.begin(), order.end());
    for (int64_t j = 0; j < in.k; ++j) ids.push_back(order[static_cast<size_t>(j)].second);
  }
  return ids;
}

const ChoiceGroups kGroups[] = {
    {1, 1, 1, 1},    {2, 24, 2, 6}, {3, 300, 3, 9},
    {1, 700, 8, 16}, {2, 0, 2, 4},  {1, 320, 2, 320}};  // more choices than a team has threads, and more experts

TEST_P(BalanceOn, ForcedUniformIsThePatternOfEachGroup) {
  for (const ChoiceGroups& in : kGroups) {
    Ids expected;
    for (int64_t g = 0; g < in.groups; ++g) {
      for (int64_t c = 0; c < in.choices(); ++c) expected.push_back(c % in.num_experts);
    }
    const auto ids = put(Ids(expected.size(), -7));
    cuda::force_uniform(stream(), ids.data(), in);
    expect_same_bits(ids.values(), expected, "ids");
  }
}

TEST_P(BalanceOn, ACapacityKeepsTheBestOrTheEarliestOfEachExpertAndGroup) {
  for (const ChoiceGroups& in : kGroups) {
    const Ids chosen = random_choices(in, 3);
    auto scores = numbers<float>(in.groups * in.tokens * in.num_experts, 4, 3);
    for (float& s : scores) s = std::trunc(s * 4) / 4;  // ties, −0 and 0, and the negative values of noise
    for (size_t i = 0; i < scores.size(); i += 13) scores[i] = std::nanf("");
    const auto from = put(chosen), ids = put(Ids(chosen.size(), -7));
    const auto by = put(scores);
    for (const int64_t capacity : {int64_t{1}, int64_t{5}, in.choices() / in.num_experts + 1, in.choices() + 1}) {
      for (const bool by_score : {false, true}) {
        Ids expected = chosen;
        for (int64_t g = 0; g < in.groups; ++g) {
          for (int64_t e = 0; e < in.num_experts; ++e) {
            std::vector<int64_t> of_expert;
            for (int64_t c = g * in.choices(); c < (g + 1) * in.choices(); ++c)
              if (chosen[static_cast<size_t>(c)] == e) of_expert.push_back(c);
            const auto score = [&](int64_t c) {
              const float s = scores[static_cast<size_t>(c / in.k * in.num_experts + e)];
              return by_score ? (std::isnan(s) ? -1.0f : s) : 0.0f;
            };
            std::stable_sort(of_expert.begin(), of_expert.end(),
                             [&](int64_t a, int64_t b) { return score(a) > score(b); });
            for (size_t i = static_cast<size_t>(capacity); i < of_expert.size(); ++i)
              expected[static_cast<size_t>(of_expert[i])] = ~e;
          }
        }
        cuda::keep_capacity(stream(), from.data(), by_score ? by.data() : nullptr, ids.data(), capacity, in);
        expect_same_bits(ids.values(), expected, "capacity " + std::to_string(capacity));
      }
    }
  }
}

// moe/balance_device_test.cpp compares the choices with those of the rule on the CPU.
TEST_P(BalanceOn, SwipeEvensEachGroupWithTheChoicesOfTheHost) {
  for (const ChoiceGroups& in : kGroups) {
    const Ids chosen = random_choices(in, 5);
    const auto from = put(chosen), ids = put(Ids(chosen.size(), -7));
    const auto space = put(Ids(static_cast<size_t>(cuda::swipe_workspace(in)), -7));
    cuda::swipe(stream(), from.data(), ids.data(), space.data(), in);
    const Ids actual = ids.values();
    Ids on_host(chosen.size(), -7), host_space(static_cast<size_t>(cuda::swipe_workspace(in)), -7);
    cuda::swipe(cuda::Stream::host(), chosen.data(), on_host.data(), host_space.data(), in);
    expect_same_bits(actual, on_host, "ids");
    for (int64_t g = 0; g < in.groups; ++g) {
      const auto begin = actual.begin() + g * in.choices(), end = begin + in.choices();
      for (int64_t e = 0; e < in.num_experts; ++e)
        EXPECT_EQ(std::count(begin, end, e), in.choices() / in.num_experts) << "expert " << e << " of group " << g;
      for (auto token = begin; token != end; token += in.k) {
        Ids of_token(token, token + in.k);
        std::sort(of_token.begin(), of_token.end());
        EXPECT_EQ(std::adjacent_find(of_token.begin(), of_token.end()), of_token.end());
      }
    }
  }
}

TEST_P(BalanceOn, SwipeRefusesSharesThatAreNotWhole) {
  const auto ids = put(Ids(3)), out = put(Ids(3)), space = put(Ids(1));
  EXPECT_THROW(cuda::swipe(stream(), ids.data(), out.data(), space.data(), {1, 3, 1, 2}), std::runtime_error);
}

}  // namespace
}  // namespace athanor::kernels::balance_test
