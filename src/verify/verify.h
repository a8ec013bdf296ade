#pragma once
// athanor verify: checks whether a layout computes what one rank computes.

#include <c10/core/Device.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "verify/reference.h"
#include "verify/small_model.h"

namespace athanor::inline verify {

struct VerifyRequest {
  Reference reference = Reference::kOneRank;  ///< what the layout is compared with
  bool twice = false;                         ///< run the layout a second time: all bits must be equal
  int draws = 3;                              ///< number of data sets that are compared together in bfloat16
  std::filesystem::path keep = {};            ///< folder that keeps the traces of all runs; empty: they are not kept
  std::string plant = {};                     ///< name of a fault to plant into the layout's runs; empty: none
  /// This rank's device, on which the layout runs. The reference is on the CPU, whatever this is: so an error of the
  /// device is in one of the two, and rank 0's device, which may be its alone, needs no second process.
  c10::Device device = c10::kCPU;
  /// For tests: this process takes the reference, and starts none for it.
  bool same_process = false;
};

/// A small run (make_small_run) in one type.
struct TypedRun {
  RunConfig small;
  std::optional<RunConfig> then;  ///< another layout of the run, which resumes it after half of the steps
};

/// Returns the types that a run is verified in: the one that is asked for; otherwise float32, whose bounds are tight,
/// and the run's own type; compared with portable forms, float32 alone.
/// @param asked  "float32", "bfloat16", or "" if no type is asked for.
/// @throws ConfigError if bfloat16 is asked for with portable forms.
std::vector<std::string> types_to_verify(const RunConfig& config, const std::string& asked, Reference reference);

/// Verifies the layout. It takes the steps of small runs, one for each type, on the ranks of `world`; rank 0 starts a
/// process that takes the same steps with the reference (one rank, or portable forms), compares, and prints the result.
/// It is repeated on other data as long as an outcome may be chance (judge.h). Collective. Ranks on several hosts write
/// their traces into the working directory, which they must share.
/// @param runs  the same run in different types.
/// @return on every rank: 0 if they agree within their bounds in every type, 1 if they do not.
/// @throws ConfigError if there is no such plant, or the layout has nothing for it; on rank 0 what ReferenceProcess
/// throws.
int run_verify(const std::vector<TypedRun>& runs, const VerifyRequest& request, comm::World& world);

/// The work of the reference's process: it takes and records the runs whose configurations are in `folder`, on data
/// sets [first, first + count), following the traces of the layout's `num_ranks` ranks that it finds there.
void run_reference(const std::filesystem::path& folder, int num_ranks, uint64_t first, uint64_t count,
                   Reference reference);

}  // namespace athanor::inline verify
