#pragma once
// moe.dispatch = "auto": every way to dispatch is measured on the run's own shapes, and the fastest is kept.
//
// Which one it is changes no bits (dispatch.h says where it may), so that two runs may keep different ones.

#include <filesystem>
#include <string>

#include "moe/dispatch.h"

namespace athanor::moe {

/// One sparse layer of a microbatch.
struct DispatchShape {
  int64_t tokens = 0;  ///< of a rank
  int64_t k = 1, hidden = 0, intermediate = 0, num_experts = 0;
  at::ScalarType dtype = at::kFloat;
};

struct TunedDispatch {
  DispatchOptions options;
  bool remembered = false;  ///< from the cache: nothing was measured
  std::string table;        ///< of what was measured, for people; the same on every rank
  std::string record = {};  ///< what `cache` is to hold from now on; of rank 0, where something was measured
};

/// Collective over `world`, of which `experts` is this rank's expert group. Every rank answers the same: times are the
/// slowest rank's, and rank 0's choice is broadcast.
/// @param given  inner_ranks is kept, and so are chunks unless they are 0.
/// @param cache  a file that rank 0 reads; one of another shape, world or layout of nodes is not used, and one that
///               cannot be read costs a measurement, not the run. Empty: none. Nothing is written: that is the caller's
///               affair, when everything that may refuse a run has passed.
/// Counters of `experts` begin anew. Takes two forwards and backwards of one layer for each of up to 18 ways, and
/// four more for the four best of them.
TunedDispatch tune_dispatch(comm::Communicator& world, comm::Communicator& experts, const DispatchShape& shape,
                            const DispatchOptions& given, const std::filesystem::path& cache);

}  // namespace athanor::moe
