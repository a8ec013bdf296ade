#include "kernels/cuda/balance.h"

#include "kernels/cuda/launch.h"
#include "kernels/cuda/top_k.h"

namespace athanor::kernels::cuda {
namespace {

using GroupTeam = Team<kThreads>;

// Scores as integers of the same order, above 0; NaN is −1.
ATHANOR_INLINE uint64_t order_of(float score) { return key_of(score == score ? score : -1.0f, 0) >> 32; }

// The choices of one expert in a group.
struct ExpertChoices {
  const int64_t* chosen;  // the group's choices
  const float* scores;    // the scores of the group's tokens for this expert; null: all are equal
  int64_t choices, k, num_experts, expert;

  // Returns 0 if choice c is not of this expert.
  ATHANOR_INLINE uint64_t order(int64_t c) const {
    if (c >= choices || chosen[c] != expert) return 0;
    return scores ? order_of(scores[c / k * num_experts]) : 1;
  }
};

ATHANOR_INLINE int64_t count_from(const GroupTeam& team, const ExpertChoices& of, uint64_t least) {
  return team.sum<int64_t>([=](int thread) {
    int64_t count = 0;
    for (int64_t c = thread; c < of.choices; c += kThreads) count += of.order(c) >= least ? 1 : 0;
    return count;
  });
}

// Returns the largest order that at least `capacity` choices reach, by bisection: the order of the last that stays.
ATHANOR_INLINE uint64_t order_of_last(const GroupTeam& team, const ExpertChoices& of, int64_t capacity) {
  if (!of.scores) return 1;
  uint64_t last = 0;
  for (uint64_t bit = uint64_t{1} << 31; bit > 0; bit /= 2) {
    if (count_from(team, of, last | bit) >= capacity) last |= bit;
  }
  return last;
}

}  // namespace

void force_uniform(const Stream& stream, int64_t* ids, const ChoiceGroups& in) {
  const int64_t choices = in.choices(), num_experts = in.num_experts;
  for_each_index(stream, "force_uniform", in.groups * choices,
                 [=] ATHANOR_BODY(int64_t c) { ids[c] = c % choices % num_experts; });
}

void keep_capacity(const Stream& stream, const int64_t* all_chosen, const float* all_scores, int64_t* all_ids,
                   int64_t capacity, const ChoiceGroups& in) {
  for_each_team<kThreads>(stream, "keep_capacity", in.groups * in.num_experts, [=] ATHANOR_BODY(const GroupTeam& team) {
    const int64_t group = team.index() / in.num_experts, expert = team.index() % in.num_experts;
    const int64_t choices = in.tokens * in.k;
    const float* scores = all_scores ? all_scores + group * in.tokens * in.num_experts + expert : nullptr;
    const ExpertChoices of{all_chosen + group * choices, scores, choices, in.k, in.num_experts, expert};
    int64_t* ids = all_ids + group * choices;
    const bool fits = count_from(team, of, 1) <= capacity;
    // Choices above the last one's order stay, and as many of those with its order as there is still room for.
    const uint64_t last = fits ? 1 : order_of_last(team, of, capacity);
    int64_t room = fits ? choices : capacity - count_from(team, of, last + 1);
    for (int64_t first = 0; first < choices; first += kThreads) {
      const int64_t left = room;
      room -= team.scan<int64_t>([=](int thread) { return of.order(first + thread) == last ? 1 : 0; },
                                 [=](int thread, int64_t earlier) {
                                   const uint64_t order = of.order(first + thread);
                                   if (order == 0) return;
                                   const bool stays = order > last || (order == last && earlier < left);
                                   ids[first + thread] = stays ? expert : ~expert;
                                 });
    }
  });
}

namespace {

constexpr int64_t kUnplaced = -1;

// One group on its way through moe/swipe.cpp. Every thread of the team walks the same way; what all of them read while
// one writes goes through Team::read or a reduction, whose barriers keep the two apart.
struct Walk {
  const int64_t* chosen;
  int64_t *ids, *room, *overflow, *column;  // column [num_experts][kThreads]
  int64_t tokens, k, num_experts;

  ATHANOR_INLINE bool has(int64_t token, int64_t expert) const {
    for (int64_t c = token * k; c < (token + 1) * k; ++c) {
      if (ids[c] == expert) return true;
    }
    return false;
  }

  // Choices in the order in which they are placed: all first choices, then all second ones.
  ATHANOR_INLINE int64_t in_order(int64_t i) const { return i % tokens * k + i / tokens; }

  // Places chosen experts as long as they have room, and lists the choices that overflow, in order; returns their
  // number. A thread has a block of choices and, for each expert, a column that counts them.
  ATHANOR_INLINE int64_t place_chosen(const GroupTeam& team) const {
    const Walk w = *this;
    const int64_t choices = tokens * k, block = (choices + kThreads - 1) / kThreads, share = choices / num_experts;
    team.each([=](int thread) {
      for (int64_t e = 0; e < w.num_experts; ++e) w.column[e * kThreads + thread] = 0;
      for (int64_t i = thread * block; i < min_of((thread + 1) * block, choices); ++i)
        ++w.column[w.chosen[w.in_order(i)] * kThreads + thread];
    });
    team.each([=](int thread) {
      for (int64_t e = thread; e < w.num_experts; e += kThreads) {
        int64_t before = 0;
        for (int64_t t = 0; t < kThreads; ++t) {
          const int64_t own = w.column[e * kThreads + t];
          w.column[e * kThreads + t] = before;
          before += own;
        }
        w.room[e] = share - min_of(before, share);
      }
    });
    const auto place = [=](int thread) {
      int64_t over = 0;
      for (int64_t i = thread * block; i < min_of((thread + 1) * block, choices); ++i) {
        const int64_t c = w.in_order(i), expert = w.chosen[c];
        const bool fits = w.column[expert * kThreads + thread]++ < share;
        w.ids[c] = fits ? expert : kUnplaced;
        over += fits ? 0 : 1;
      }
      return over;
    };
    return team.scan<int64_t>(place, [=](int thread, int64_t earlier) {
      for (int64_t i = thread * block; i < min_of((thread + 1) * block, choices); ++i) {
        if (w.ids[w.in_order(i)] == kUnplaced) w.overflow[earlier++] = w.in_order(i);
      }
    });
  }

  // Returns the first expert from `from` on that has room and that the token lacks (no token: any), or num_experts.
  ATHANOR_INLINE int64_t first_open(const GroupTeam& team, int64_t from, int64_t token) const {
    const Walk w = *this;
    return -team.max<int64_t>([=](int thread) {
      for (int64_t e = from + thread; e < w.num_experts; e += kThreads) {
        if (w.room[e] > 0 && (token < 0 || !w.has(token, e))) return -e;
      }
      return -w.num_experts;
    });
  }

  // Returns how many choices of the list from `next` on can be given to `expert` at once: choices of one rank, so of
  // different tokens, which lack it.
  ATHANOR_INLINE int64_t run_of(const GroupTeam& team, int64_t next, int64_t count, int64_t expert) const {
    const Walk w = *this;
    const int64_t rank = overflow[next] % k;
    return -team.max<int64_t>([=](int thread) -> int64_t {
      const int64_t at = next + thread;
      if (at < count && w.overflow[at] % w.k == rank && !w.has(w.overflow[at] / w.k, expert)) return -kThreads;
      return -thread;
    });
  }

  // Gives the overflow to experts with room. Those that stay unplaced, as their token has all experts with room, go to
  // the front of the list; returns their number.
  ATHANOR_INLINE int64_t place_overflow(const GroupTeam& team, int64_t count) const {
    const Walk w = *this;
    int64_t next = 0, stuck = 0, open = first_open(team, 0, -1);
    while (next < count) {
      const int64_t room_left = team.read(room + open), begin = next, expert = open;
      int64_t run = run_of(team, next, count, expert);
      run = run < room_left ? run : room_left;
      if (run > 0) {
        team.each([=](int thread) {
          if (thread < run) w.ids[w.overflow[begin + thread]] = expert;
          if (thread == 0) w.room[expert] = room_left - run;
        });
        next += run;
        if (run == room_left) open = first_open(team, open, -1);
        continue;
      }
      // This token has the first open expert, so that one keeps its room.
      const int64_t choice = team.read(overflow + next), other = first_open(team, open + 1, choice / k), front = stuck;
      team.each([=](int thread) {
        if (thread != 0) return;
        if (other == w.num_experts) {
          w.overflow[front] = choice;
        } else {
          w.ids[choice] = other;
          --w.room[other];
        }
      });
      if (other == num_experts) ++stuck;
      ++next;
    }
    return stuck;
  }

  // Returns the first token from `from` on that lacks the expert; there is one.
  ATHANOR_INLINE int64_t first_without(const GroupTeam& team, int64_t from, int64_t expert) const {
    const Walk w = *this;
    for (int64_t first = from;; first += kThreads) {
      const int64_t found = -team.max<int64_t>([=](int thread) -> int64_t {
        return first + thread < w.tokens && !w.has(first + thread, expert) ? -thread : -kThreads;
      });
      if (found < kThreads) return first + found;
    }
  }

  // Each of these tokens has every open expert. It takes one of a token that lacks the first open expert, which gets
  // that instead: the one that was wanted, or else the giver's least choice that this token lacks.
  ATHANOR_INLINE void exchange(const GroupTeam& team, int64_t stuck) const {
    const Walk w = *this;
    int64_t open = -1, giver = 0;
    for (int64_t i = 0; i < stuck; ++i) {
      const int64_t choice = team.read(overflow + i), expert = first_open(team, open < 0 ? 0 : open, -1);
      giver = first_without(team, expert == open ? giver : 0, expert);
      open = expert;
      const int64_t of_giver = giver * k, wanted = chosen[choice];
      const int64_t given = team.max<int64_t>([=](int thread) {
        int64_t best = -1;
        for (int64_t j = thread; j < w.k; j += kThreads) {
          const int64_t id = w.ids[of_giver + j];
          if (!w.has(choice / w.k, id)) best = id == wanted ? w.k + j : j > best ? j : best;
          if (best >= w.k) break;
        }
        return best;
      });
      const int64_t from = of_giver + given % k;
      team.each([=](int thread) {
        if (thread != 0) return;
        w.ids[choice] = w.ids[from];
        w.ids[from] = expert;
        --w.room[expert];
      });
    }
  }
};

// Room, overflow and columns of a group.
int64_t workspace_of_group(const ChoiceGroups& in) { return in.num_experts * (1 + kThreads) + in.choices(); }

}  // namespace

int64_t swipe_workspace(const ChoiceGroups& in) { return in.groups * workspace_of_group(in); }

void swipe(const Stream& stream, const int64_t* chosen, int64_t* ids, int64_t* workspace, const ChoiceGroups& in) {
  const int64_t choices = in.choices(), size = workspace_of_group(in);
  if (in.num_experts < 1 || choices % in.num_experts != 0)
    fail_launch("swipe", "the experts cannot have equal shares of a group's choices");
  if (choices == 0) return;
  for_each_team<kThreads>(stream, "swipe", in.groups, [=] ATHANOR_BODY(const GroupTeam& team) {
    int64_t* room = workspace + team.index() * size;
    const Walk walk{chosen + team.index() * choices,
                    ids + team.index() * choices,
                    room,
                    room + in.num_experts,
                    room + in.num_experts + choices,
                    in.tokens,
                    in.k,
                    in.num_experts};
    walk.exchange(team, walk.place_overflow(team, walk.place_chosen(team)));
  });
}

}  // namespace athanor::kernels::cuda
