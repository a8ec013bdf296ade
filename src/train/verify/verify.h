#pragma once
// athanor verify: does a layout compute what one rank computes?

#include <filesystem>

#include "comm/world.h"
#include "train/verify/small_model.h"

namespace athanor {

struct VerifyRequest {
  bool twice = false;          ///< run the layout a second time: all bits must be equal
  int draws = 3;               ///< data sets that bfloat16 is compared on
  std::filesystem::path keep;  ///< where the traces of all runs are left; empty: nowhere
};

/// The types that a run is verified in unless one is asked for: float32, whose bounds are tight, and the run's own.
std::vector<std::string> types_to_verify(const RunConfig& config, const std::string& asked);

/// Takes the steps of small runs (make_small_run), one for each type, over the ranks of `world`; rank 0 has one rank
/// take the same steps as a process of its own, compares, and prints what was found. Collective. Ranks on several hosts
/// write their traces into the working directory, which they must share.
/// @param smalls  the same run in one type after the other.
/// @return on every rank: 0 if they agree within their bounds in every type, 1 if they do not.
int run_verify(const std::vector<RunConfig>& smalls, const VerifyRequest& request, comm::World& world);

/// What the process of one rank does: the runs that `folder` describes, on data `first` and those after it.
void run_reference(const std::filesystem::path& folder, uint64_t first, uint64_t count);

}  // namespace athanor
