#include "verify/portable/portable_balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace athanor::inline verify::portable {
namespace {

struct Place {
  size_t token, rank;  // the choice's token, and its rank among the token's choices
};

bool has(const std::vector<int64_t>& experts, int64_t expert) {
  return std::find(experts.begin(), experts.end(), expert) != experts.end();
}

// moe.balance capacity: an expert keeps factor times its even share, by score or by position.
Choices drop_beyond_capacity(const MoeConfig& moe, const Choices& chosen,
                             const std::vector<std::vector<double>>& scores, int64_t num_experts) {
  const auto k = static_cast<double>(chosen.at(0).size()), tokens = static_cast<double>(chosen.size());
  const double share = moe.capacity_factor * tokens * k / static_cast<double>(num_experts);
  const double capacity = std::max(1.0, std::ceil(share * (1 - 1e-12)));  // 1.1 · 10 is a little above 11 in binary
  Choices kept = chosen;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    std::vector<Place> takers;
    for (size_t t = 0; t < chosen.size(); ++t) {
      for (size_t j = 0; j < chosen[t].size(); ++j) {
        if (chosen[t][j] == expert) takers.push_back({t, j});
      }
    }
    if (moe.capacity_order == CapacityOrder::kScore) {
      const auto e = static_cast<size_t>(expert);
      std::stable_sort(takers.begin(), takers.end(),
                       [&](const Place& a, const Place& b) { return scores[a.token][e] > scores[b.token][e]; });
    }
    for (size_t i = 0; i < takers.size(); ++i) {
      if (static_cast<double>(i) >= capacity) kept[takers[i].token][takers[i].rank] = kDropped;
    }
  }
  return kept;
}

// moe.balance swipe (BaGuaLu §4.2): every expert gets tokens · k / E choices. First come all first choices, then all
// second ones, etc., as long as experts have room. The others go, in that order, to the lowest expert with room that
// their token does not have. If there is none, the first token without the lowest expert with room takes that expert.
// It gives up the expert that the stuck token wanted, or else its own least choice that the stuck token does not have.
class EvenShares {
 public:
  EvenShares(const Choices& chosen, int64_t num_experts)
      : chosen_(chosen), placed_(chosen.size()), room_(static_cast<size_t>(num_experts)) {
    const size_t k = chosen.at(0).size();
    for (auto& experts : placed_) experts.assign(k, kDropped);
    std::fill(room_.begin(), room_.end(), static_cast<int64_t>(chosen.size() * k) / num_experts);
  }

  Choices run() {
    std::vector<Place> left, stuck;
    for (size_t j = 0; j < chosen_.at(0).size(); ++j) {
      for (size_t t = 0; t < chosen_.size(); ++t) {
        if (!put({t, j}, chosen_[t][j])) left.push_back({t, j});
      }
    }
    for (const Place& place : left) {
      if (!put_anywhere(place)) stuck.push_back(place);
    }
    for (const Place& place : stuck) exchange(place);
    return placed_;
  }

 private:
  bool put(const Place& place, int64_t expert) {
    int64_t& room = room_.at(static_cast<size_t>(expert));
    if (room == 0) return false;
    --room;
    placed_[place.token][place.rank] = expert;
    return true;
  }

  bool put_anywhere(const Place& place) {
    for (int64_t expert = 0; expert < static_cast<int64_t>(room_.size()); ++expert) {
      if (!has(placed_[place.token], expert) && put(place, expert)) return true;
    }
    return false;
  }

  void exchange(const Place& place) {
    const auto open = std::find_if(room_.begin(), room_.end(), [](int64_t room) { return room > 0; }) - room_.begin();
    auto giver = std::find_if(placed_.begin(), placed_.end(),
                              [&](const std::vector<int64_t>& experts) { return !has(experts, open); });
    ATHANOR_ASSERT(giver != placed_.end());
    const int64_t wanted = chosen_[place.token][place.rank];
    size_t given = giver->size();
    for (size_t j = 0; j < giver->size(); ++j) {
      if (has(placed_[place.token], (*giver)[j])) continue;
      given = j;
      if ((*giver)[j] == wanted) break;
    }
    placed_[place.token][place.rank] = giver->at(given);
    put({static_cast<size_t>(giver - placed_.begin()), given}, open);
  }

  const Choices& chosen_;
  Choices placed_;
  std::vector<int64_t> room_;
};

// moe.balance forced_uniform: experts take turns.
Choices in_turns(const Choices& chosen, int64_t num_experts) {
  Choices turned = chosen;
  int64_t next = 0;
  for (auto& experts : turned) {
    for (int64_t& expert : experts) expert = next++ % num_experts;
  }
  return turned;
}

}  // namespace

Choices choose_best(const std::vector<std::vector<double>>& scores, int64_t k) {
  Choices choices;
  for (const auto& of_token : scores) {
    std::vector<int64_t> experts(of_token.size());
    std::iota(experts.begin(), experts.end(), 0);
    std::stable_sort(experts.begin(), experts.end(), [&](int64_t a, int64_t b) {
      return of_token[static_cast<size_t>(a)] > of_token[static_cast<size_t>(b)];
    });
    experts.resize(static_cast<size_t>(k));
    choices.push_back(experts);
  }
  return choices;
}

Choices balance(const MoeConfig& moe, const Choices& chosen, const std::vector<std::vector<double>>& scores,
                int64_t num_experts) {
  if (moe.balance == Balance::kCapacity) return drop_beyond_capacity(moe, chosen, scores, num_experts);
  if (moe.balance == Balance::kSwipe) return EvenShares(chosen, num_experts).run();
  if (moe.balance == Balance::kForcedUniform) return in_turns(chosen, num_experts);
  return chosen;
}

}  // namespace athanor::inline verify::portable
