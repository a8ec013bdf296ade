#pragma once
// athanor verify: does a layout compute what one rank computes?

#include <filesystem>
#include <optional>

#include "comm/world.h"
#include "train/verify/reference.h"
#include "train/verify/small_model.h"

namespace athanor {

struct VerifyRequest {
  Reference reference = Reference::kOneRank;  ///< what the layout is held against
  std::optional<RunConfig> then;  ///< another layout of the small run, which resumes it after half of the steps
  bool twice = false;             ///< run the layout a second time: all bits must be equal
  std::filesystem::path keep;     ///< where the traces of all runs are left; empty: nowhere
};

/// Takes the steps of a small run (make_small_run) over the ranks of `world`; rank 0 has the reference (one rank, or
/// portable forms) take the same steps as a process of its own, compares, and prints what was found. Collective. Ranks
/// on several hosts write their traces into the working directory, which they must share.
/// @return on every rank: 0 if they agree within their bounds, 1 if they do not.
int run_verify(const RunConfig& small, const VerifyRequest& request, comm::World& world);

/// What the reference's process does: the run that `folder` describes, on data `draw`.
void run_reference(const std::filesystem::path& folder, uint64_t draw, Reference reference);

}  // namespace athanor
