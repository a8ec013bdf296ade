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

}  // namespace athanor::moe
