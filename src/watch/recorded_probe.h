#pragma once
// A probe of a run's ranks (probe.h), with its record in the run's folder and its lines in the log.

#include <string>

#include "parallel/mesh.h"
#include "train/run_context.h"

namespace athanor::inline watch {

struct ProbedRun {
  std::string run_dir;
  at::Device device = at::kCPU;
  int64_t step = 0;           ///< the last one that was done
  bool shares_cores = false;  ///< ranks of the first host do: they measure each other, so that no one is warned
};

/// Measures the ranks, adds a line to probes.jsonl, and warns of what is slow. Collective over the world.
/// @param why  "start" or "asked".
void probe_and_record(const Mesh& mesh, const RunContext& at, const ProbedRun& run, const std::string& why);

}  // namespace athanor::inline watch
