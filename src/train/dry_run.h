#pragma once
// Computes what one rank of a layout would hold and send, without running it: for worlds of any size, on any machine.
//
// The code that trains lays out the rank's part of the model in meta tensors, which have shapes and no memory. Its
// gradients and weights go through the real reducer and gatherer over collectives without peers (comm/fake), so that
// the bytes are counted at the place that sends them. Formulas give the activations and the traffic within the model
// (layout/activations.h, layout/traffic.h); tests compare them with real runs.

#include <map>
#include <string>
#include <vector>

#include "layout/activations.h"
#include "layout/memory.h"
#include "layout/traffic.h"
#include "parallel/mesh.h"

namespace athanor {

/// One kind of collective over one group.
struct SentLine {
  std::string what = {}, collective = {}, group = {};
  int ranks = 1;
  double calls = 0, bytes = 0, inside = 0;  ///< per step; `inside`: bytes within the rank's supernode
  /// The largest number of the group's collectives that had been started and not waited for at one time. 0 for lines
  /// that come from a formula.
  int64_t in_flight = 0;
};

struct DryRun {
  int rank = 0, threads = 1;
  std::map<Replication, int64_t> held;  ///< number of elements, by replication kind
  int64_t flat_elements = 0;            ///< including the padding of buckets
  size_t num_buckets = 0;
  StateBytes state;
  ActivationNeed activations;
  double gradient_buffer_bytes = 0;  ///< rounded gradients in transit
  std::vector<SentLine> sent;

  /// Returns the largest number of collectives in flight for each group, over all lines that were counted at the
  /// sender.
  std::map<std::string, int64_t> collectives_in_flight() const;
  double total_bytes() const {
    return static_cast<double>(state.total()) + activations.peak_bytes + gradient_buffer_bytes;
  }
};

/// @param config  resolved: data.seq_len is set and the model's fields are filled in.
/// @param rank  −1: the rank that needs most memory.
/// @throws ConfigError with every fault of the layout.
DryRun dry_run(const RunConfig& config, int num_ranks, int rank);

/// Return the result as text for people (report) and as JSON for programs (to_json).
std::string report(const DryRun& run, const RunConfig& config, int num_ranks);
std::string to_json(const DryRun& run, const RunConfig& config, int num_ranks);

}  // namespace athanor
