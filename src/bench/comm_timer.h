#pragma once
// Times operations that several ranks perform together. The subjects alternate: a round of each begins on all ranks at
// the same time, and takes as long as it takes the slowest rank.

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace athanor::bench {

/// An operation that all ranks call together.
struct Joint {
  std::string name;
  double bytes = 0;  ///< bytes that a rank sends (or copies) in a call
  std::function<void()> call;
};

/// Returns for each subject the seconds of a call, the median of the rounds; the same numbers on every rank. A round is
/// as many calls as take about 20 ms. Collective over `all`.
std::vector<double> time_jointly(comm::Communicator& all, const std::vector<Joint>& subjects, int rounds);

}  // namespace athanor::bench
