#pragma once
// Timing of what several ranks do together, in turns: a round of each subject begins for all ranks at once, and takes
// as long as it takes the slowest.

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace athanor::bench {

/// Something that all ranks call together.
struct Joint {
  std::string name;
  double bytes = 0;  ///< that a rank sends (or copies) in a call
  std::function<void()> call;
};

/// Seconds of a call, the median of the rounds, of each subject; the same numbers on every rank.
/// Collective over `all`. A round is as many calls as fill some 20 ms.
std::vector<double> time_jointly(comm::Communicator& all, const std::vector<Joint>& subjects, int rounds);

}  // namespace athanor::bench
