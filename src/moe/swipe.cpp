// SWIPE: every expert gets exactly the same number of choices. Source: BaGuaLu §4.2, which mentions the extension to
// top-k.

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "moe/balance_rule.h"
#include "ops/device/on_stream.h"

namespace athanor::moe {
namespace {

constexpr int64_t kUnplaced = -1;

// Makes each of `num_experts` experts appear exactly tokens · k / num_experts times in ids, and no token have an
// expert twice.
//
// The best choices are placed first: all tokens' first choices, in token order, then all second ones, and so on. A
// choice whose expert is full overflows. The overflow is then placed, in the same order, in the experts with room, in
// their order; a token passes over experts that it has. If a token already has all experts with room, it takes an
// expert of another token that lacks one of these, and that token takes this one instead.
//
// The result is a function of `ids` alone: equal on every rank that has them. Time: linear in tokens · k +
// num_experts, for k bounded (each choice is compared with the k of its token).
//
// run() returns how many choices went to an expert that their token had not chosen: at least Σ max(0, count − even
// share) over experts.
class Walk {
 public:
  Walk(std::span<int64_t> ids, int64_t k, int64_t num_experts)
      : ids_(ids), chosen_(ids.begin(), ids.end()), k_(k), tokens_(static_cast<int64_t>(ids.size()) / k),
        room_(static_cast<size_t>(num_experts), static_cast<int64_t>(ids.size()) / num_experts) {}

  int64_t run() {
    place_chosen();
    list_open_experts();
    std::vector<int64_t> stuck;
    for (const int64_t choice : overflow_) {
      if (!place_in_room(choice)) stuck.push_back(choice);
    }
    for (const int64_t choice : stuck) exchange(choice);
    return count_moved();
  }

 private:
  int64_t& room(int64_t expert) { return room_[static_cast<size_t>(expert)]; }
  std::span<int64_t> of_token(int64_t token) { return ids_.subspan(static_cast<size_t>(token * k_), size_t(k_)); }
  std::span<const int64_t> chosen_by(int64_t token) const {
    return std::span(chosen_).subspan(static_cast<size_t>(token * k_), static_cast<size_t>(k_));
  }
  int64_t& id(int64_t choice) { return ids_[static_cast<size_t>(choice)]; }
  bool has(int64_t token, int64_t expert) {
    return std::ranges::find(of_token(token), expert) != of_token(token).end();
  }

  // Places chosen experts as long as they have room, best choices first; the rest is overflow.
  void place_chosen() {
    for (int64_t rank = 0; rank < k_; ++rank) {
      for (int64_t choice = rank; choice < tokens_ * k_; choice += k_) {
        if (room(id(choice)) > 0) {
          --room(id(choice));
        } else {
          overflow_.push_back(choice);
        }
      }
    }
    for (const int64_t choice : overflow_) id(choice) = kUnplaced;
  }

  void list_open_experts() {
    for (int64_t expert = 0; expert < static_cast<int64_t>(room_.size()); ++expert) {
      if (room(expert) > 0) open_.push_back(expert);
    }
    std::ranges::reverse(open_);  // taken from the back, lowest first
  }

  void put(int64_t choice, size_t at) {
    id(choice) = open_[at];
    if (--room(open_[at]) == 0) open_.erase(open_.begin() + static_cast<int64_t>(at));
  }

  // Takes the first open expert that the token does not have. The token has fewer than k, so fewer than k are passed
  // over, and no more than that come after the one that is erased.
  bool place_in_room(int64_t choice) {
    for (size_t at = open_.size(); at-- > 0;) {
      if (has(choice / k_, open_[at])) continue;
      put(choice, at);
      return true;
    }
    return false;
  }

  // The token has every open expert. The first open expert has room, so fewer than all tokens have it. Every token
  // without it is completely placed, with k experts, at least two of which this token lacks: one of them is exchanged.
  //
  // A token with an open expert never gives that one up, so the search for each open expert continues where it was.
  // There are fewer than k open experts here, so all searches together pass each token fewer than k times.
  void exchange(int64_t choice) {
    const int64_t token = choice / k_, expert = open_.back();
    if (expert != searched_) {
      searched_ = expert;
      giver_ = 0;
    }
    while (has(giver_, expert)) ++giver_;
    const int64_t wanted = chosen_[static_cast<size_t>(choice)];
    int64_t given = kUnplaced;
    for (int64_t c = giver_ * k_; c < (giver_ + 1) * k_; ++c) {
      if (has(token, id(c))) continue;
      given = c;                   // the giver's least choice,
      if (id(c) == wanted) break;  // or the one that this token wanted originally
    }
    ATHANOR_ASSERT(given != kUnplaced);
    id(choice) = id(given);
    put(given, open_.size() - 1);
  }

  int64_t count_moved() {
    int64_t moved = 0;
    for (int64_t token = 0; token < tokens_; ++token) {
      const auto chosen = chosen_by(token);
      for (const int64_t expert : of_token(token)) moved += std::ranges::find(chosen, expert) == chosen.end();
    }
    return moved;
  }

  std::span<int64_t> ids_;
  std::vector<int64_t> chosen_;
  int64_t k_, tokens_;
  std::vector<int64_t> room_;      // for each expert
  std::vector<int64_t> overflow_;  // choices, in the order in which they are placed
  std::vector<int64_t> open_;      // experts with room, descending
  int64_t searched_ = kUnplaced, giver_ = 0;
};

class Swipe : public BalanceRule {
 public:
  BalanceCounts balance(const BalanceOptions& /*options*/, std::span<int64_t> ids, std::span<const float> /*scores*/,
                        int64_t k, int64_t num_experts) const override {
    ATHANOR_CHECK_AS(Error, static_cast<int64_t>(ids.size()) % num_experts == 0,
                     "swipe: {} experts cannot have equal shares of {} choices", num_experts, ids.size());
    return {.moved = Walk(ids, k, num_experts).run()};
  }
  void launch(const BalanceOptions& /*options*/, const GroupsThere& groups, const Tensor& ids_TK) const override {
    using ops::device::data;
    const Tensor workspace = at::empty({kernels::cuda::swipe_workspace(groups.sizes)}, ids_TK.options());
    kernels::cuda::swipe(ops::device::OnStream(ids_TK), data<int64_t>(groups.chosen_TK), data<int64_t>(ids_TK),
                         data<int64_t>(workspace), groups.sizes);
  }
};

}  // namespace

const BalanceRule& swipe_rule() {
  static const Swipe rule;
  return rule;
}

}  // namespace athanor::moe
