#pragma once
// moe.dispatch = "auto": measures the kinds of dispatch on the run's own shapes, and keeps the fastest. all_to_all_2d
// takes part only if its tree of sums is that of the others, which needs a power of two of ranks in a node. The group
// must also span several nodes of more than one rank.
//
// The kind changes no bits (dispatch.h lists the exceptions), so two runs may keep different ones.

#include <filesystem>
#include <string>

#include "moe/dispatch.h"

namespace athanor::moe {

/// One sparse layer of a microbatch.
struct DispatchShape {
  int64_t tokens = 0;  ///< tokens of a microbatch on a rank
  int64_t k = 1, hidden = 0, intermediate = 0, num_experts = 0;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;  ///< the device of the tensors and of the expert group
  int64_t most_of_expert = -1;   ///< KnownTokens::most_of_expert; choices beyond it are dropped
  ops::ExpertForm form = {};
};

struct TunedDispatch {
  DispatchOptions options;
  bool remembered = false;  ///< from the cache: nothing was measured
  std::string table;        ///< the measurements as text, for people; equal on every rank
  std::string record = {};  ///< the new content of `cache`; empty except on rank 0 of `world` after a measurement
};

/// Returns the fastest options. Collective over `world`, a group for tensors of the host; `experts` is this rank's
/// expert group in it. Every rank returns the same options: times are the slowest rank's, and rank 0's choice is
/// broadcast. If it measures, it resets the counters of `experts`. After one forward and backward of one layer for
/// warm-up, it takes two for each of up to 18 options, and four more for each of the four best.
/// @param given  kAuto, or the only kind to measure. inner_ranks is kept, and so is chunks unless it is 0; in_flight is
///               not read.
/// @param cache  a file that rank 0 reads. One of another shape, world or layout of nodes is not used, and an
///        unreadable one costs a measurement, not the run. Empty: no cache. Nothing is written: the caller writes
///        `record` once every check that may refuse the run has passed.
TunedDispatch tune_dispatch(comm::Communicator& world, comm::Communicator& experts, const DispatchShape& shape,
                            const DispatchOptions& given, const std::filesystem::path& cache);

}  // namespace athanor::moe
