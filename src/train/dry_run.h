#pragma once
// What one rank of a layout would hold and send, without running it: for worlds of any size, on any machine.
//
// The rank's part of the model is laid out by the code that trains, in meta tensors, which have shapes and no memory;
// its gradients and weights go through the real reducer and gatherer over collectives without peers (comm/fake), so
// that what these send is counted where it is sent. Activations and what travels within the model are formulas
// (arch/activations.h, arch/traffic.h), which tests hold against real runs.

#include <map>
#include <string>
#include <vector>

#include "arch/activations.h"
#include "arch/memory.h"
#include "arch/traffic.h"
#include "parallel/mesh.h"

namespace athanor {

/// One kind of collective over one group.
struct SentLine {
  std::string what, collective, group;
  int ranks = 1;
  double calls = 0, bytes = 0, inside = 0;  ///< of a step; bytes within the rank's supernode
  /// Of the group, when most were: collectives that had been started and not waited for. 0: a formula knows none.
  int64_t in_flight = 0;
};

struct DryRun {
  int rank = 0, threads = 1;
  std::map<std::string, int64_t> held;  ///< elements, by parameter group
  int64_t flat_elements = 0;            ///< with the padding of buckets
  size_t num_buckets = 0;
  StateBytes state;
  ActivationNeed activations;
  double gradient_buffer_bytes = 0;  ///< rounded gradients on their way
  std::vector<SentLine> sent;

  /// By group, over all that was counted where it was sent.
  std::map<std::string, int64_t> collectives_in_flight() const;
  double total_bytes() const {
    return static_cast<double>(state.total()) + activations.peak_bytes + gradient_buffer_bytes;
  }
};

/// @param config  resolved: data.seq_len set, the model's fields filled in. @param rank  −1: the one that needs most.
/// @throws ConfigError with every fault of the layout.
DryRun dry_run(const RunConfig& config, int num_ranks, int rank);

/// For people; for programs.
std::string report(const DryRun& run, const RunConfig& config, int num_ranks);
std::string to_json(const DryRun& run, const RunConfig& config, int num_ranks);

}  // namespace athanor
