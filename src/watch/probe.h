#pragma once
// Measures what a step needs of each rank and node, to find the one that is slow before the run finds it: products of
// matrices, memory, messages to the neighbours, and the disk of the run's folder.

#include <cstdint>
#include <string>
#include <vector>

#include "ops/tensor.h"
#include "parallel/mesh.h"
#include "train/run_context.h"

namespace athanor::inline watch {

/// What the ranks measured, by rank; NaN: not measured.
struct Probe {
  std::vector<double> gemm_gflops;       ///< libtorch's product of fp32 matrices, on the device of the run
  std::vector<double> memory_gb_s;       ///< reading and writing, of a copy in that memory
  std::vector<double> ping_us;           ///< round trip of 8 bytes to the next rank and back; NaN for a rank alone
  std::vector<double> link_mb_s;         ///< both ways, of a message of 1 MiB to the next rank and back
  std::vector<double> device_link_mb_s;  ///< between devices of neighbours (device_link.h)
  std::vector<double> disk_ms;           ///< to write 1 MiB into the run's folder and sync it; on one rank of each node
  double seconds = 0;                    ///< that the probe took
  /// For the messages over the host, and for those between devices: 1 if the next rank is on another host. Empty: not
  /// known.
  std::vector<double> next_is_away = {}, next_device_is_away = {};
};

/// Measures, for about 0.1 s; on devices, the first time, also for as long as their library takes to connect the ranks.
/// Collective over the world.
/// @return on the first rank what all measured; empty on the others.
Probe measure_probe(const Mesh& mesh, at::Device device, const std::string& run_dir);

/// A rank, or a node, that is slow.
struct SlowPart {
  int rank = 0;
  std::string what, unit;        ///< "products", "GFLOP/s"
  double value = 0, median = 0;  ///< those of this rank, and the median of all
};
/// Returns what is far worse than the median of at least three ranks: products and memory that reach less than 3/4 of
/// it, messages and disks that take more than 3 times as long. Messages within a host are compared with one another,
/// and so are those between hosts. The worst come first for each quantity.
std::vector<SlowPart> find_slow_parts(const Probe& probe);

/// Returns the line of RUN/probes.jsonl (docs/failures.md), without its end.
std::string probe_json(const Probe& probe, const std::vector<SlowPart>& slow, const std::vector<std::string>& hosts,
                       int64_t attempt, int64_t step, const std::string& why);
/// Returns a table for people: the least, median and greatest value of each quantity, and the slow parts.
std::string describe_probe(const Probe& probe, const std::vector<SlowPart>& slow,
                           const std::vector<std::string>& hosts);
/// Returns a line for the log about at most four slow parts; "" if there are none.
std::string describe_slow_parts(const std::vector<SlowPart>& slow, const std::vector<std::string>& hosts);

/// What a run tells of itself for the record of a probe.
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
