#pragma once
// For tests: runs a function on several ranks, which are threads of one process, and returns their results.

#include <vector>

#include "comm/thread_ranks.h"
#include "ops/tensor.h"

namespace athanor::inline parallel {

/// Returns body(world) of each rank, by rank. Ranks that call different collectives are named; no rank waits longer
/// than a minute.
template <class F>
std::vector<std::vector<Tensor>> results_of_ranks(int ranks, F body) {
  std::vector<std::vector<Tensor>> results(static_cast<size_t>(ranks));
  comm::WorldOptions options;
  options.check = true;
  options.timeout = std::chrono::seconds(60);
  comm::run_ranks(
      ranks,
      [&](comm::World& world) {
        at::set_num_threads(1);
        results[static_cast<size_t>(world.rank())] = body(world);
      },
      options);
  return results;
}

}  // namespace athanor::inline parallel
