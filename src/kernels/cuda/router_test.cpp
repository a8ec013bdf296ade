#include "kernels/cuda/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <utility>

#include "kernels/cuda/testing/device.h"
#include "kernels/routing.h"

namespace athanor::kernels::router_test {
namespace {

using namespace test;
using Floats = std::vector<float>;
using Ids = std::vector<int64_t>;

struct Case {
  int64_t sequences, tokens;
  RouterRule rule;
  int64_t rows() const { return sequences * tokens; }
  size_t scores() const { return static_cast<size_t>(rows() * rule.width); }
  size_t choices() const { return static_cast<size_t>(rows() * rule.k); }
};

// Rows that do not fill a warp, more experts than a team has threads, pieces that are not whole, no tokens.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const bool sigmoid : {false, true}) {
    for (const bool norm : {false, true}) {
      all.push_back({2, 70, {21, 4, sigmoid, norm, 2.5f}});
      all.push_back({1, 3, {300, 8, sigmoid, norm, 1.0f}});
      all.push_back({3, 129, {8, 1, sigmoid, norm, 1.0f}});
      all.push_back({2, 0, {8, 2, sigmoid, norm, 1.0f}});
    }
  }
  return all;
}

struct Rows {
  Floats scores, logsumexp, weights;
  Ids ids;
  std::vector<cuda::RowFacts> facts;
};

class RouterOn : public OnEachPlace {
 protected:
  template <class T>
  Rows route(const Case& c, const std::vector<T>& logits, const Ids& given = {}) {
    const auto from = put(logits);
    const auto scores = put(garbage<float>(static_cast<int64_t>(c.scores()))),
               logsumexp = put(garbage<float>(c.rows()));
    const auto weights = put(garbage<float>(static_cast<int64_t>(c.choices())));
    const auto ids = put(given.empty() ? Ids(c.choices(), -7) : given);
    const auto facts = put(std::vector<cuda::RowFacts>(static_cast<size_t>(c.rows())));
    cuda::route_rows<T>(stream(), from.data(), c.rule, {}, given.empty() ? nullptr : ids.data(),
                        {scores.data(), logsumexp.data(), facts.data(), ids.data(), weights.data()}, c.rows());
    return {scores.values(), logsumexp.values(), weights.values(), ids.values(), facts.values()};
  }
  // A device's logarithm has an error of one ULP, and so has the host's: of at most 8 here.
  void expect_logarithm(const Floats& actual, const Floats& expected) {
    if (GetParam() != Place::kCuda) return expect_same_bits(actual, expected, "logsumexp");
    for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 8 * 4 * 0x1p-24) << i;
  }
};
ATHANOR_ON_CUDA_PLACES(RouterOn);

template <class T>
Rows on_cpu(const Case& c, const std::vector<T>& logits) {
  Rows r{Floats(c.scores()), Floats(static_cast<size_t>(c.rows())), Floats(c.choices()), Ids(c.choices()), {}};
  router_scores<T>(logits.data(), r.scores.data(), r.logsumexp.data(), c.rows(), c.rule);
  top_k(r.scores.data(), r.ids.data(), c.rows(), c.rule.width, c.rule.k);
  router_weights(r.scores.data(), r.ids.data(), r.weights.data(), c.rows(), c.rule);
  return r;
}

// One in five choices goes elsewhere, one in seven is dropped.
Ids balanced(const Ids& ids, const RouterRule& rule) {
  Ids result = ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (rule.k == 1 && i % 5 == 0) result[i] = (ids[i] + 1) % rule.width;
    if (i % 7 == 0) result[i] = ~ids[i];
  }
  return result;
}

template <class T>
std::vector<T> logits_of(const Case& c) {
  auto logits = numbers<T>(static_cast<int64_t>(c.scores()), 3, 4);
  for (size_t e = 0; e < static_cast<size_t>(c.rule.width) && e < logits.size(); ++e) store(logits[e], 0.5f);  // flat
  return logits;
}

TEST_P(RouterOn, ChoicesScoresAndWeightsHaveTheBitsOfTheCpu) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const Case& c : cases()) {
      const auto logits = logits_of<T>(c);
      const Rows expected = on_cpu(c, logits), actual = route(c, logits);
      expect_same_bits(actual.scores, expected.scores, "scores");
      expect_logarithm(actual.logsumexp, expected.logsumexp);
      expect_same_bits(actual.ids, expected.ids, "ids");
      expect_same_bits(actual.weights, expected.weights, "weights");
      if (c.rows() == 0) continue;
      // Choices that were made earlier only get their weights, here or from another kernel.
      const Ids given = balanced(expected.ids, c.rule);
      Floats of_given(c.choices());
      router_weights(expected.scores.data(), given.data(), of_given.data(), c.rows(), c.rule);
      expect_same_bits(route(c, logits, given).weights, of_given, "weights of given choices");
      const auto scores = put(expected.scores), weights = put(garbage<float>(static_cast<int64_t>(c.choices())));
      const auto ids = put(given);
      cuda::router_weights(stream(), scores.data(), ids.data(), weights.data(), c.rows(), c.rule);
      expect_same_bits(weights.values(), of_given, "weights of balanced choices");
    }
  });
}

TEST_P(RouterOn, NoiseAndBiasChangeTheChoicesAlone) {
  const Case c{1, 40, {21, 4, false, true, 1.0f}};
  const auto logits = numbers<float>(static_cast<int64_t>(c.scores()), 3, 4);
  const auto noise = numbers<float>(static_cast<int64_t>(c.scores()), 4, 3), bias = numbers<float>(c.rule.width, 5);
  for (const bool sigmoid : {false, true}) {
    for (const bool with_noise : {false, true}) {
      for (const bool alone : {false, with_noise}) {
        for (const bool with_bias : {false, true}) {
          RouterRule rule = c.rule;
          rule.sigmoid = sigmoid;
          Floats by(c.scores()), scores(c.scores()), weights(c.choices());
          Floats lse(static_cast<size_t>(c.rows())), noisy = logits;
          for (size_t i = 0; with_noise && i < noisy.size(); ++i) noisy[i] += noise[i];
          router_scores(logits.data(), scores.data(), lse.data(), c.rows(), rule);
          router_scores(noisy.data(), by.data(), lse.data(), c.rows(), rule);
          if (alone) by = noise;
          for (size_t i = 0; with_bias && !alone && i < by.size(); ++i)
            by[i] += bias[i % static_cast<size_t>(rule.width)];
          Ids ids(c.choices());
          top_k(by.data(), ids.data(), c.rows(), rule.width, rule.k);
          router_weights(scores.data(), ids.data(), weights.data(), c.rows(), rule);

          const auto from = put(logits), out_scores = put(garbage<float>(static_cast<int64_t>(c.scores())));
          const auto out_lse = put(garbage<float>(c.rows())), chosen_by = put(noise), biases = put(bias);
          const auto out_weights = put(garbage<float>(static_cast<int64_t>(c.choices())));
          const auto out_ids = put(Ids(c.choices(), -7));
          const cuda::ChoosingRule choosing{with_noise ? chosen_by.data() : nullptr, alone,
                                            with_bias ? biases.data() : nullptr, chosen_by.data()};
          cuda::route_rows<float>(stream(), from.data(), rule, choosing, nullptr,
                                  {out_scores.data(), out_lse.data(), nullptr, out_ids.data(), out_weights.data()},
                                  c.rows());
          expect_same_bits(out_ids.values(), ids, "ids");
          expect_same_bits(out_scores.values(), scores, "scores");
          expect_same_bits(out_weights.values(), weights, "weights");
          if (with_noise || with_bias) expect_same_bits(chosen_by.values(), by, "chosen by");
        }
      }
    }
  }
}

// Rows of large noise, whose scores underflow or, of sigmoids, round to 1.
TEST_P(RouterOn, WhereNoiseLeavesScoresWithoutAnOrderLogitsDecideAndTheyDecideTiesWithABias) {
  constexpr int64_t kRows = 40, kWidth = 37;
  const auto logits = numbers<float>(kRows * kWidth, 3, 4), noise = numbers<float>(kRows * kWidth, 4, 3000);
  auto bias = numbers<float>(kWidth, 5);
  for (size_t e = 0; e < bias.size(); ++e) bias[e] = e % 3 == 0 ? 0.25f : -0.5f;
  for (const bool sigmoid : {false, true}) {
    const RouterRule rule{kWidth, 8, sigmoid};
    Floats noisy = logits, scores(noisy.size()), lse(kRows);
    for (size_t i = 0; i < noisy.size(); ++i) noisy[i] += noise[i];
    router_scores(noisy.data(), scores.data(), lse.data(), kRows, rule);
    for (const bool with_bias : {false, true}) {
      Ids expected;
      for (size_t row = 0; row < kRows; ++row) {
        std::vector<int64_t> order(kWidth);
        std::iota(order.begin(), order.end(), int64_t{0});
        std::ranges::stable_sort(order, std::greater<>(), [&](int64_t e) {
          const size_t i = row * kWidth + static_cast<size_t>(e);
          return std::pair(with_bias ? scores[i] + bias[static_cast<size_t>(e)] : 0.0f, noisy[i]);
        });
        expected.insert(expected.end(), order.begin(), order.begin() + rule.k);
      }
      const auto from = put(logits), of_noise = put(noise), biases = put(bias),
                 by = put(garbage<float>(kRows * kWidth)), out_scores = put(garbage<float>(kRows * kWidth)),
                 out_lse = put(garbage<float>(kRows)), out_weights = put(garbage<float>(kRows * rule.k));
      const auto out_ids = put(Ids(static_cast<size_t>(kRows * rule.k), -7));
      cuda::route_rows<float>(stream(), from.data(), rule,
                              {of_noise.data(), false, with_bias ? biases.data() : nullptr, by.data()}, nullptr,
                              {out_scores.data(), out_lse.data(), nullptr, out_ids.data(), out_weights.data()}, kRows);
      expect_same_bits(out_ids.values(), expected, "ids");
    }
  }
}

TEST_P(RouterOn, SumsHaveTheBitsOfTheCpuAndCountBothChoices) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const Case& c : cases()) {
      const int64_t width = c.rule.width;
      const auto logits = logits_of<T>(c);
      const Rows rows = on_cpu(c, logits);
      const Ids after = balanced(rows.ids, c.rule);
      Floats prob(static_cast<size_t>(c.sequences * width)), count(prob.size());
      Ids counts(static_cast<size_t>(cuda::router_counts(width)));
      RouterSums total;
      for (int64_t first = 0, s = 0; s < c.sequences; ++s, first = s * c.tokens) {
        for (int64_t at = 0; at < c.tokens; at += 64) {
          Floats part(static_cast<size_t>(width));
          const int64_t row = first + at;
          const RouterSums sums =
              router_sums<T>(logits.data() + row * width, rows.scores.data() + row * width, rows.logsumexp.data() + row,
                             part.data(), std::min<int64_t>(64, c.tokens - at), c.rule);
          total.z += sums.z, total.entropy += sums.entropy, total.num_flat += sums.num_flat;
          for (int64_t e = 0; e < width; ++e) prob[static_cast<size_t>(s * width + e)] += part[static_cast<size_t>(e)];
        }
      }
      for (size_t i = 0; i < rows.ids.size(); ++i) {
        const auto begin = static_cast<int64_t>(i) / c.rule.k * c.rule.k;
        const auto of_token = rows.ids.begin() + begin;
        count[static_cast<size_t>(begin / c.rule.k / c.tokens * width + rows.ids[i])] += 1;
        ++counts[static_cast<size_t>(rows.ids[i])];
        if (after[i] >= 0) ++counts[static_cast<size_t>(width + after[i])];
        counts[static_cast<size_t>(2 * width)] +=
            after[i] >= 0 && std::find(of_token, of_token + c.rule.k, after[i]) == of_token + c.rule.k;
        counts[static_cast<size_t>(2 * width + 1)] += after[i] < 0;
      }
      counts[static_cast<size_t>(2 * width + 2)] = total.num_flat;

      const Rows there = route(c, logits);
      const auto scores = put(rows.scores), lse = put(rows.logsumexp);
      const auto facts = put(there.facts);
      const auto chosen = put(rows.ids), ids = put(after), out_counts = put(Ids(counts.size(), -7));
      const auto out_prob = put(garbage<float>(static_cast<int64_t>(prob.size()))), z = put(garbage<float>(1));
      const auto out_count = put(garbage<float>(static_cast<int64_t>(prob.size())));
      const auto space = put(
          std::vector<double>(static_cast<size_t>(cuda::router_sums_workspace(c.sequences, c.tokens, width)), 7e77));
      for (const bool counting : {true, false}) {
        cuda::router_sums(
            stream(), scores.data(), lse.data(), facts.data(), counting ? chosen.data() : nullptr,
            counting ? ids.data() : nullptr,
            {out_prob.data(), z.data(), counting ? out_count.data() : nullptr, counting ? out_counts.data() : nullptr},
            space.data(), c.sequences, c.tokens, c.rule);
        expect_same_bits(out_prob.values(), prob, "prob_sum");
        expect_same_bits(z.values(), {static_cast<float>(total.z)}, "z_sum");
      }
      expect_same_bits(out_count.values(), count, "count");
      Ids actual = out_counts.values();
      // Entropies of sigmoids are added in other orders, in fp64, and each has three roundings of fp32 and a logarithm.
      const double entropy = std::bit_cast<double>(actual.back());
      actual.back() = 0;
      EXPECT_EQ(actual, counts);
      const bool same = GetParam() != Place::kCuda;
      EXPECT_NEAR(entropy, total.entropy,
                  error_bound(total.entropy + 8.0 * static_cast<double>(c.rows()), 0, same ? 0 : 5) +
                      width * 0x1p-50 * (1 + total.entropy));
      EXPECT_TRUE(c.rows() == 0 || total.num_flat > 0);
    }
  });
}

TEST_P(RouterOn, BackwardHasTheBitsOfTheCpu) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const Case& c : cases()) {
      const int64_t width = c.rule.width;
      const auto logits = logits_of<T>(c);
      const Rows rows = on_cpu(c, logits);
      const Ids after = balanced(rows.ids, c.rule);
      const auto dweights = numbers<float>(static_cast<int64_t>(c.choices()), 7);
      const auto dprob = numbers<float>(c.sequences * width, 8);
      const float dz = 0.01f;
      const auto scores = put(rows.scores), lse = put(rows.logsumexp), dw = put(dweights), dp = put(dprob);
      const auto dzs = put(Floats{dz});
      const auto from = put(logits);
      const auto ids = put(after);
      for (const int missing : {0, 1, 2, 3}) {  // no gradient, then that of one of the three
        const bool has_w = missing != 1, has_p = missing != 2, has_z = missing != 3;
        std::vector<T> expected(c.scores());
        const Floats zero_w(c.choices()), zero_p(dprob.size());
        for (int64_t s = 0; s < c.sequences; ++s) {
          const int64_t row = s * c.tokens;
          router_backward<T>(logits.data() + row * width, rows.scores.data() + row * width, rows.logsumexp.data() + row,
                             after.data() + row * c.rule.k, (has_w ? dweights : zero_w).data() + row * c.rule.k,
                             (has_p ? dprob : zero_p).data() + s * width, has_z ? dz : 0, expected.data() + row * width,
                             c.tokens, c.rule);
        }
        const auto out = put(garbage<T>(static_cast<int64_t>(c.scores())));
        cuda::router_backward<T>(stream(), from.data(), scores.data(), lse.data(), ids.data(),
                                 has_w ? dw.data() : nullptr, has_p ? dp.data() : nullptr, has_z ? dzs.data() : nullptr,
                                 out.data(), c.sequences, c.tokens, c.rule);
        const auto actual = out.values();
        for (size_t i = 0; i < actual.size(); ++i)
          ASSERT_EQ(load(actual[i]), load(expected[i])) << i << ", without gradient " << missing;
      }
    }
  });
}

}  // namespace
}  // namespace athanor::kernels::router_test
