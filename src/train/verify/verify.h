#pragma once
// athanor verify: does a layout compute what one rank computes?

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/verify/reference.h"
#include "train/verify/small_model.h"

namespace athanor {

struct VerifyRequest {
  Reference reference = Reference::kOneRank;  ///< what the layout is held against
  bool twice = false;                         ///< run the layout a second time: all bits must be equal
  int draws = 3;                              ///< data sets that bfloat16 is compared on
  std::filesystem::path keep;                 ///< where the traces of all runs are left; empty: nowhere
  std::string plant = {};  ///< a fault that is put into the layout's runs (plants/names.h); empty: none
};

/// A small run (make_small_run) in one type.
struct TypedRun {
  RunConfig small;
  std::optional<RunConfig> then;  ///< another layout of it, which resumes it after half of the steps
};

/// The types that a run is verified in: the one that is asked for, or float32, whose bounds are tight, and the run's
/// own; held against portable forms, float32 alone. @throws ConfigError for these in bfloat16.
std::vector<std::string> types_to_verify(const RunConfig& config, const std::string& asked, Reference reference);

/// Takes the steps of small runs, one for each type, over the ranks of `world`; rank 0 has the reference (one rank, or
/// portable forms) take the same steps as a process of its own, compares, and prints what was found. Collective. Ranks
/// on several hosts write their traces into the working directory, which they must share.
/// @param runs  the same run in one type after the other.
/// @return on every rank: 0 if they agree within their bounds in every type, 1 if they do not.
/// @throws ConfigError if there is no such plant, or the layout has nothing for it.
int run_verify(const std::vector<TypedRun>& runs, const VerifyRequest& request, comm::World& world);

/// What the reference's process does: the runs that `folder` describes, along those of the layout's `num_ranks` ranks
/// that it finds there, on data `first` and those after it.
void run_reference(const std::filesystem::path& folder, int num_ranks, uint64_t first, uint64_t count,
                   Reference reference);

}  // namespace athanor
