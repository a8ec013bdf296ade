#pragma once
// The schedules that there are: each a file beside this one, and a row of the table in arch/schedule.cpp.

#include <vector>

#include "arch/schedule.h"
#include "config/findings.h"

namespace athanor::schedules {

/// What a schedule is asked for.
struct Shape {
  int ranks, chunks, microbatches;
};

struct Kind {
  const char* name;
  /// The actions of one rank, of two or more, where `require` has found nothing.
  std::vector<Action> (*actions_of)(int rank, const Shape& shape);
  /// Says what is wrong with these numbers, for two ranks or more, and what to set.
  void (*require)(int ranks, int chunks, int64_t microbatches, Findings& found);
};

extern const Kind kGpipe, kOneForwardOneBackward, kInterleaved;

/// Forwards and backwards in the order that each of them has for itself: `num_ahead` forwards, then one of each in
/// turn, then the backwards that are left.
std::vector<Action> one_in_turn(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                                int num_ahead);

/// For schedules that know one stage of each rank.
void require_one_chunk(const char* name, int chunks, Findings& found);
/// Part of each remedy.
inline constexpr const char* kMoreMicrobatches =
    "a rank's microbatches are its share of train.global_batch_size, cut by train.micro_batch_size";

}  // namespace athanor::schedules
