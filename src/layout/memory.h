#pragma once
// Counts the memory that a training process will hold, before it starts: its state, and what is no tensor of a step.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "layout/communicator_memory.h"
#include "layout/layout.h"
#include "layout/optimizer_state.h"
#include "layout/shards.h"

namespace athanor::inline layout {

/// The elements that a rank holds, in two classes, whose optimizer state is sharded over different ranks: those of
/// experts, and those of all other replication kinds (`dense`).
struct HeldElements {
  int64_t dense = 0, expert = 0;
  int64_t matrices = 0;  ///< the sum of count_matrices over the parameters; values of kMatrix state are not sharded
  int64_t total() const { return dense + expert; }
};

/// Returns what each rank holds if the tensor and pipeline degrees are 1, without the padding of buckets. `matrices`
/// stays 0.
HeldElements count_held_elements(const ModelConfig& model, int64_t expert_degree);

/// Returns the elements that `rank` (of the world) holds, by replication kind, without the padding of buckets.
std::map<Replication, int64_t> count_held_by_replication(const RunConfig& config, const Layout& layout, int rank);
/// Returns what `rank` holds, without the padding of buckets.
HeldElements count_held_elements(const RunConfig& config, const Layout& layout, int rank);
/// Returns what `rank` holds of the parameters of each optimizer, by its name.
std::map<std::string, HeldElements> count_held_by_optimizer(const RunConfig& config, const Layout& layout, int rank,
                                                            const OptimizerPlan& optimizers);

/// The number of ranks that divide the optimizer state of parameters that all of them hold: each owns one of that many
/// equal shards. D is the number of data ranks and E the expert degree; shard and shard' are the sizes in
/// layout/layout.h. SO, EPSO and ParO are the names in the papers.
///
///   sharding      dense    experts
///   none          1        1
///   optimizer     D / E    D / E     (SO)
///   ep_aware      D        D / E     (EPSO, Optimus §3.2)
///   hierarchical  shard    shard'    (ParO, BaGuaLu §4.4)
struct StateShards {
  int64_t dense = 1, expert = 1;
};
StateShards count_state_shards(const ParallelismConfig& parallelism, const Layout& layout);

/// Bytes of one rank. In bf16 the master is stored as the rounded weight and 16 additional bits (kernels/master.h), so
/// it takes 2 bytes in addition to the weight; in fp32 the weight is the master.
struct StateBytes {
  int64_t weights = 0;    ///< 2 (bf16) or 4 bytes for each element held
  int64_t master = 0;     ///< 2 (bf16) or 0 for each element owned
  int64_t optimizer = 0;  ///< what the optimizer declares; AdamW's moments take 8 for each element owned
  int64_t gradient = 0;   ///< 4 for each element held
  int64_t total() const { return weights + master + optimizer + gradient; }
  StateBytes& operator+=(const StateBytes& other);
};

/// Returns the bytes of a rank's state. They are exact if `held` includes the padding of buckets, because the padded
/// elements are a multiple of the number of shards; otherwise the owned elements are rounded up.
/// @param bf16  true if train.dtype is bfloat16.
StateBytes count_state_bytes(HeldElements held, StateShards shards, bool bf16, const OptimizerDeclaration& optimizer);
/// Returns the bytes of the state of `rank`, summed over the optimizers, without the padding of buckets.
StateBytes count_state_bytes(const RunConfig& config, const Layout& layout, int rank, const OptimizerPlan& optimizers);

/// The memory of a rank, of its host or of its device (plan/rank_memory.h).
struct MemoryNeed {
  double state_bytes = 0;       ///< StateBytes::total
  double activation_bytes = 0;  ///< kept when the fullest forward or backward of a microbatch begins
  double transient_bytes = 0;   ///< what that takes on top of it
  double update_bytes = 0;      ///< what an update of whole matrices (Muon) takes; the activations are gone by then
  double graph_bytes = 0;       ///< count_graph_bytes
  double staging_bytes = 0;     ///< count_staging_bytes, unless it is the memory of a device
  // On a device:
  double communicator_bytes = 0;  ///< opened_groups
  double allocator_bytes = 0;     ///< count_allocator_bytes
  double workspace_bytes = 0;     ///< count_workspace_bytes
  /// The most that the rank holds for a time: activations with what comes and goes, or the matrices of an update.
  double passing_bytes() const { return std::max(activation_bytes + transient_bytes, update_bytes); }
  /// True if that is what the update holds.
  bool update_is_peak() const { return update_bytes > activation_bytes + transient_bytes; }
  double total() const {
    return state_bytes + passing_bytes() + graph_bytes + staging_bytes + communicator_bytes + allocator_bytes +
           workspace_bytes;
  }
};

/// Returns the bytes of tensors that each rank of the world writes into a full checkpoint, in fp32: its share of master
/// and optimizer state. Without the padding of buckets, so that ranks with neighbouring parts of a parameter may write
/// a little more or less.
std::vector<double> count_written_bytes(const RunConfig& config, const Layout& layout, Writers writers);

/// Returns the host's memory for a copy of what `rank` writes of a checkpoint, in fp32: its share of master and
/// optimizer state, as checkpoint.writers divides them; 0 if checkpoints are not written in the background
/// (checkpoint.async). Without the padding of pieces.
double count_staging_bytes(const RunConfig& config, const Layout& layout, int rank, const OptimizerPlan& optimizers);

/// Returns what libtorch's allocator of a device keeps in addition to what is in use: blocks are rounded to 2 MiB, and
/// a free block of another size may not serve. The parameters' state is a few large blocks that stay, and has no such
/// rest. For what comes and goes it is taken to be a tenth; this was not measured.
double count_allocator_bytes(double bytes_that_come_and_go);

/// Returns the bytes of all workspaces of cuBLAS on a rank's CUDA device (layout/device_workspace.h).
double count_workspace_bytes(const RunConfig& config, const Layout& layout);

/// Returns what train.cuda_graphs adds to the need of a rank; 0 without it. The graph of a shape keeps the activations
/// and the temporary memory of a microbatch also while other work runs. That is a whole microbatch in the steps that
/// metrics.layer_statistics observes, else validation, which keeps one layer's activations. One graph is counted:
/// documents may give microbatches other shapes, with a graph for each.
double count_graph_bytes(const RunConfig& config, const MemoryNeed& need);

}  // namespace athanor::inline layout
