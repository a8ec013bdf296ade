#include "moe/balance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "moe/balance_rule.h"
#include "ops/device/on_stream.h"

namespace athanor::moe {

const BalanceRule& swipe_rule();  // swipe.cpp

namespace {

// The choices of each expert, expert by expert, with ascending tokens within each: a counting sort.
struct ByExpert {
  std::vector<int64_t> begin;    // [num_experts + 1]
  std::vector<int64_t> choices;  // [tokens · k]
};

ByExpert sort_by_expert(std::span<const int64_t> ids, int64_t num_experts) {
  ByExpert sorted{std::vector<int64_t>(static_cast<size_t>(num_experts) + 1), std::vector<int64_t>(ids.size())};
  for (const int64_t expert : ids) ++sorted.begin[static_cast<size_t>(expert) + 1];
  for (size_t e = 1; e < sorted.begin.size(); ++e) sorted.begin[e] += sorted.begin[e - 1];
  auto next = sorted.begin;
  for (size_t c = 0; c < ids.size(); ++c) {
    sorted.choices[static_cast<size_t>(next[static_cast<size_t>(ids[c])]++)] = static_cast<int64_t>(c);
  }
  return sorted;
}

int64_t drop_over_capacity(std::span<int64_t> ids, std::span<const float> scores, int64_t num_experts, int64_t capacity,
                           CapacityOrder order) {
  ByExpert sorted = sort_by_expert(ids, num_experts);
  int64_t dropped = 0;
  for (int64_t e = 0; e < num_experts; ++e) {
    const auto first = sorted.choices.begin() + sorted.begin[static_cast<size_t>(e)];
    const auto last = sorted.choices.begin() + sorted.begin[static_cast<size_t>(e) + 1];
    if (last - first <= capacity) continue;
    // No score is below 0; a NaN would have no position in an order.
    const auto score = [&](int64_t choice) {
      const float s = scores[static_cast<size_t>(choice)];
      return std::isnan(s) ? -1.0f : s;
    };
    if (order == CapacityOrder::kScore) {  // a selection, so linear; the order is total, so the result is always the
                                           // same
      std::nth_element(first, first + capacity, last,
                       [&](int64_t a, int64_t b) { return score(a) != score(b) ? score(a) > score(b) : a < b; });
    }
    for (auto choice = first + capacity; choice != last; ++choice, ++dropped) ids[static_cast<size_t>(*choice)] = ~e;
  }
  return dropped;
}

}  // namespace

int64_t most_choices_of_expert(const BalanceOptions& options, int64_t num_sequences, int64_t tokens, int64_t k,
                               int64_t num_experts) {
  if (options.kind != Balance::kCapacity || num_sequences == 0) return -1;
  // If a group spans ranks, a part of it is here.
  const int64_t groups = std::max<int64_t>(1, num_sequences / options.group_sequences);
  const int64_t of_group = tokens / num_sequences * options.group_sequences * k;
  return std::min(tokens, groups * expert_capacity(options.capacity_factor, of_group, num_experts));
}

int64_t expert_capacity(double factor, int64_t num_choices, int64_t num_experts) {
  // 1.1 · 10 is a little above 11 in binary; it must not become 12.
  const double exact = factor * static_cast<double>(num_choices) / static_cast<double>(num_experts);
  // The product of an infinite factor is not an integer, and an expert takes at most all choices.
  if (!(exact < static_cast<double>(num_choices))) return std::max<int64_t>(1, num_choices);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(exact * (1 - 1e-12))));
}

int64_t force_uniform(std::span<int64_t> ids, int64_t k, int64_t num_experts, int64_t first_token) {
  int64_t moved = 0;
  const auto num_choices = static_cast<int64_t>(ids.size());
  std::vector<int64_t> chosen(static_cast<size_t>(k));
  for (int64_t begin = 0; begin < num_choices; begin += k) {
    const auto of_token = ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(k));
    std::ranges::copy(of_token, chosen.begin());
    for (int64_t j = 0; j < k; ++j) {
      const int64_t expert = (first_token * k + begin + j) % num_experts;
      of_token[static_cast<size_t>(j)] = expert;
      moved += std::ranges::find(chosen, expert) == chosen.end();
    }
  }
  return moved;
}

namespace {

using ops::device::data;
using ops::device::OnStream;

class Capacity : public BalanceRule {
 public:
  BalanceCounts balance(const BalanceOptions& options, std::span<int64_t> ids, std::span<const float> scores,
                        int64_t /*k*/, int64_t num_experts) const override {
    const int64_t capacity = expert_capacity(options.capacity_factor, static_cast<int64_t>(ids.size()), num_experts);
    return {.dropped = drop_over_capacity(ids, scores, num_experts, capacity, options.order)};
  }
  void launch(const BalanceOptions& options, const GroupsThere& groups, const Tensor& ids_TK) const override {
    const auto& in = groups.sizes;
    kernels::cuda::keep_capacity(OnStream(ids_TK), data<int64_t>(groups.chosen_TK), data<float>(groups.scores_TE),
                                 data<int64_t>(ids_TK),
                                 expert_capacity(options.capacity_factor, in.choices(), in.num_experts), in);
  }
};

class ForcedUniform : public BalanceRule {
 public:
  BalanceCounts balance(const BalanceOptions& /*options*/, std::span<int64_t> ids, std::span<const float> /*scores*/,
                        int64_t k, int64_t num_experts) const override {
    return {.moved = force_uniform(ids, k, num_experts)};
  }
  void launch(const BalanceOptions& /*options*/, const GroupsThere& groups, const Tensor& ids_TK) const override {
    kernels::cuda::force_uniform(OnStream(ids_TK), data<int64_t>(ids_TK), groups.sizes);
  }
};

}  // namespace

const BalanceRule& balance_rule(Balance kind) {
  static const Capacity capacity;
  static const ForcedUniform forced_uniform;
  switch (kind) {
    case Balance::kCapacity: return capacity;
    case Balance::kSwipe: return swipe_rule();
    case Balance::kForcedUniform: return forced_uniform;
    case Balance::kNone: break;
  }
  fail<Error>("bug: moe.balance = none is no rule");
}

BalanceCounts balance_group(const BalanceOptions& options, std::span<int64_t> ids, std::span<const float> scores,
                            int64_t k, int64_t num_experts) {
  if (options.kind == Balance::kNone) return {};
  return balance_rule(options.kind).balance(options, ids, scores, k, num_experts);
}

}  // namespace athanor::moe
