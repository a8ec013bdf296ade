#include "moe/played_choices.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/played.h"

namespace athanor::moe {
namespace {

double share_of(ExpertRange experts) {
  const auto& shares = ops::played_numbers().expert_shares;
  ATHANOR_ASSERT(experts.first >= 0 && experts.first + experts.count <= std::ssize(shares));
  return std::accumulate(shares.begin() + experts.first, shares.begin() + experts.first + experts.count, 0.0);
}

// Returns how many of the first `tokens` tokens have a choice among these experts, if they take all experts in turn.
int64_t count_in_turn(int64_t tokens, ExpertRange experts) {
  const auto& numbers = ops::played_numbers();
  const int64_t all = std::ssize(numbers.expert_shares), period = all / std::gcd(numbers.choices, all);
  int64_t in_period = 0, in_rest = 0;
  for (int64_t t = 0; t < period; ++t) {
    bool takes = false;
    for (int64_t j = 0; j < numbers.choices; ++j) {
      const int64_t expert = (t * numbers.choices + j) % all;
      takes = takes || (expert >= experts.first && expert < experts.first + experts.count);
    }
    in_period += takes;
    in_rest += takes && t < tokens % period;
  }
  return tokens / period * in_period + in_rest;
}

// Returns the part of all tokens that has a choice among these experts.
double part_with_choice(ExpertRange experts) {
  const auto& numbers = ops::played_numbers();
  const int64_t all = std::ssize(numbers.expert_shares);
  if (numbers.takes_turns) return static_cast<double>(count_in_turn(all, experts)) / static_cast<double>(all);
  const double share = share_of(experts);
  // Choice j is one of the experts that are left.
  double without = 1;
  for (int64_t j = 0; j < numbers.choices; ++j)
    without *= std::max(0.0, 1 - share * static_cast<double>(all) / static_cast<double>(all - j));
  return 1 - without;
}

}  // namespace

ExpertRange experts_of_peer(const kernels::cuda::PeersOfHop& peers, int64_t peer) {
  return {peers.first_expert + peer * peers.experts_per_peer, peers.experts_per_peer};
}
ExpertRange experts_of_peers(const kernels::cuda::PeersOfHop& peers) {
  return {peers.first_expert, peers.count * peers.experts_per_peer};
}

int64_t played_choices(int64_t tokens, ExpertRange experts) {
  return std::llround(static_cast<double>(tokens * ops::played_numbers().choices) * share_of(experts));
}

int64_t played_tokens(int64_t tokens, ExpertRange experts, ExpertRange known) {
  const auto& numbers = ops::played_numbers();
  const bool are_all = known.count == std::ssize(numbers.expert_shares);
  if (are_all && numbers.takes_turns) return count_in_turn(tokens, experts);
  const double of_known = part_with_choice(known);
  return of_known == 0 ? 0 : std::llround(static_cast<double>(tokens) * part_with_choice(experts) / of_known);
}

Tensor played_counts(const std::vector<int64_t>& chunk_begin, const kernels::cuda::PeersOfHop& peers, int64_t own) {
  const ExpertRange all = experts_of_peers(peers);
  const auto chunks = std::ssize(chunk_begin) - 1;
  const Tensor counts = at::empty({2, peers.count * chunks}, at::kLong);
  auto *go = counts.data_ptr<int64_t>(), *come = go + counts.size(1);
  const auto count = [&](int64_t peer, size_t chunk) {
    const int64_t tokens = chunk_begin[chunk + 1] - chunk_begin[chunk];
    const ExpertRange experts = experts_of_peer(peers, peer);
    const int64_t rows = played_tokens(tokens, experts, all);
    const auto of_all = static_cast<double>(tokens) / std::max(part_with_choice(all), 1e-9);
    const int64_t choices = played_choices(std::llround(of_all), experts);
    return kernels::cuda::count_of(rows, std::clamp(choices, rows, rows * ops::played_numbers().choices));
  };
  for (int64_t p = 0; p < peers.count; ++p) {
    for (size_t c = 0; c < static_cast<size_t>(chunks); ++c) {
      *go++ = count(p, c);
      *come++ = count(own, c);
    }
  }
  return counts;
}

}  // namespace athanor::moe
