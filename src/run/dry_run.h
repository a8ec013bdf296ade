#pragma once
// Computes what one rank of a layout would hold and send, without running it: for worlds of any size, on any machine.
//
// A step of the rank is played (plan/rank_memory.h): the code that trains runs on tensors that have shapes and no
// memory, in a world without peers, and the memory and the bytes are counted where they are taken and sent.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "layout/communicator_memory.h"
#include "layout/traffic.h"
#include "parallel/mesh.h"
#include "plan/rank_memory.h"

namespace athanor::inline run {

/// One kind of collective over one group, for one purpose.
struct SentLine {
  std::string what = {}, collective = {}, group = {};  ///< "gradients", "reduce_scatter", the group's name
  int ranks = 1;                                       ///< size of the group
  double calls = 0;                                    ///< calls in a step
  double bytes = 0, inside = 0;  ///< bytes that the rank sends in a step, and how many of them stay in its supernode
  /// In the group's first line: the most collectives of the group that had been started and not waited for at one time.
  int64_t in_flight = 0;
};

struct DryRun {
  double model_flops = 0, executed_flops = 0;  ///< what a step of all ranks takes (arch/flops.h)
  int rank = 0;
  int threads = 1;                      ///< threads that the memory is computed for (train.num_threads)
  std::map<Replication, int64_t> held;  ///< number of elements that the rank holds, by replication kind
  int64_t flat_elements = 0;            ///< number of elements held, with the padding of buckets
  size_t num_buckets = 0;
  StateBytes state;
  MemoryNeed need;  ///< without measured_update_bytes
  /// What a step of metrics.update_watch_interval compares in its update, when the activations are gone.
  double measured_update_bytes = 0;
  double batch_bytes = 0;    ///< tokens and targets of a step, a part of the activations
  int in_flight = 1;         ///< most microbatches between forward and backward, summed over chunks
  double staging_bytes = 0;  ///< count_staging_bytes; always of the host
  double local_bytes = 0;    ///< what local checkpoints take of checkpoint.local_dir, with copies; in no total
  /// For each node, the bytes that its ranks write into a checkpoint with either value of checkpoint.writers; empty
  /// without full checkpoints.
  std::map<std::string, std::vector<double>> written_by_node;
  bool on_device = false;           ///< all of this is the memory of a device
  std::vector<OpenedGroup> opened;  ///< opened_groups, on a device
  std::vector<SentLine> sent;

  /// Returns the largest number of collectives in flight for each group.
  std::map<std::string, int64_t> collectives_in_flight() const;
  /// What a measured update takes more than anything else in the step.
  double more_for_measured() const { return std::max(0.0, measured_update_bytes - need.passing_bytes()); }
  double total_bytes() const {
    return static_cast<double>(state.total()) + need.total() - need.state_bytes + more_for_measured();
  }
};

/// Computes the dry run of one rank, for a run on devices if train.device names one. Then nothing else on this machine
/// is asked: it needs no device.
/// @param config  resolved: data.seq_len is set and the model's fields are filled in.
/// @param rank  below num_ranks; −1: the rank that needs most memory among those with data rank 0.
/// @throws ConfigError with every fault of the layout.
DryRun dry_run(const RunConfig& config, int num_ranks, int rank);

/// Return the result as text for people (report) and as JSON for programs (to_json).
std::string report(const DryRun& run, const RunConfig& config, int num_ranks);
std::string to_json(const DryRun& run, const RunConfig& config, int num_ranks);

}  // namespace athanor::inline run
