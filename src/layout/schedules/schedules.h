#pragma once
// The available pipeline schedules. Each is a row of the table in layout/schedule.cpp.

#include <vector>

#include "config/findings.h"
#include "config/parallelism_config.h"
#include "layout/schedule.h"

namespace athanor::inline layout::schedules {

/// The numbers that a schedule depends on.
struct Shape {
  int ranks, chunks, microbatches;
};

struct Kind {
  PipelineSchedule value;
  /// Returns the actions of one rank. Called for two ranks or more, after `require` has found no fault.
  std::vector<Action> (*actions_of)(int rank, const Shape& shape);
  /// Adds to `found` what is wrong with these numbers, for two ranks or more, and the setting that corrects it.
  void (*require)(int ranks, int chunks, int64_t microbatches, Findings& found);
};

extern const Kind kGpipe, kOneForwardOneBackward, kInterleaved;

/// Merges forwards and backwards, keeping the order within each list: `num_ahead` forwards, then alternately one
/// forward and one backward, then the remaining backwards.
std::vector<Action> one_in_turn(const std::vector<Action>& forwards, const std::vector<Action>& backwards,
                                int num_ahead);

/// Reports a fault if `chunks` is not 1, for schedules that support only one stage on each rank.
void require_one_chunk(const char* name, int chunks, Findings& found);
/// A part of the remedies for a wrong number of microbatches.
inline constexpr const char* kMoreMicrobatches =
    "a rank's microbatches are its share of train.global_batch_size, cut by train.micro_batch_size";

}  // namespace athanor::inline layout::schedules
