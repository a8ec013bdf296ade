#pragma once
// The times of the ranks of a run, as metrics.jsonl has them.

#include <array>
#include <cstddef>
#include <vector>

namespace athanor::inline train {

/// The parts of a rank's time. There is nothing between them: together they are all of it.
enum TimePart : size_t {
  kDataTime,
  kForwardCompute,
  kForwardComm,
  kBackwardCompute,
  kBackwardComm,
  kOptimizerCompute,
  kOptimizerComm,
  kSaveTime,
  kEvaluationTime,  ///< validation losses too
  kOtherTime,
  kNumTimeParts
};
inline constexpr std::array<const char*, kNumTimeParts> kTimePartNames{"data",           "forward_compute",
                                                                       "forward_comm",   "backward_compute",
                                                                       "backward_comm",  "optimizer_compute",
                                                                       "optimizer_comm", "save",
                                                                       "evaluation",     "other"};

/// Seconds a step, by part and by rank.
struct RankTimes {
  std::array<std::vector<double>, kNumTimeParts> of;
  bool operator==(const RankTimes&) const = default;
};

}  // namespace athanor::inline train
