#pragma once
// Times operations that several ranks perform together. The subjects alternate: a round of each begins on all ranks at
// the same time, and takes as long as it takes the slowest rank.

#include <ATen/core/Tensor.h>

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
/// @param all     all ranks, for tensors of the host.
/// @param device  of this rank: a round begins when it has nothing left to do, and ends when it has done the calls.
std::vector<double> time_jointly(comm::Communicator& all, const std::vector<Joint>& subjects, int rounds,
                                 at::Device device = at::kCPU);

}  // namespace athanor::bench
