#pragma once
// What a training process will hold, before it holds it.

#include <cstdint>

#include "arch/layout.h"
#include "config/run_config.h"

namespace athanor {

/// Elements of flat memory that a rank holds: all dense parameters, and those experts that are its own.
struct HeldElements {
  int64_t dense = 0, expert = 0;
  int64_t total() const { return dense + expert; }
};

/// Of each rank (tensor and pipeline degree 1), without the padding of buckets.
HeldElements count_held_elements(const ModelConfig& model, int64_t expert_degree);

/// How many ranks share the state of what they all hold.
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

/// Bytes of one rank. In bf16 the weight is the upper half of the master, so its lower half is all that is left to
/// hold; in fp32 the weight is the master.
struct StateBytes {
  int64_t weights = 0;   ///< 2 (bf16) or 4 bytes for each element held
  int64_t master = 0;    ///< 2 (bf16) or 0 for each element owned
  int64_t moments = 0;   ///< 8 for each element owned
  int64_t gradient = 0;  ///< 4 for each element held
  int64_t total() const { return weights + master + moments + gradient; }
};

/// To the byte, where `held` has the padding of buckets in it: a group's padded elements divide by its shards.
StateBytes count_state_bytes(HeldElements held, StateShards shards, bool bf16);

struct MemoryNeed {
  double state_bytes = 0;       ///< master (the weights are in it), moments, gradients
  double activation_bytes = 0;  ///< kept for backward, one microbatch
  double transient_bytes = 0;   ///< the largest scratch: a chunk of logits and its gradient, or one layer's backward
  double total() const { return state_bytes + activation_bytes + transient_bytes; }
};

/// One process that holds the whole model; `seq_len` as resolved from the data.
MemoryNeed estimate_train_memory(const RunConfig& config, int64_t seq_len);

/// One rank of a layout, whose experts get an even share of the tokens.
MemoryNeed estimate_train_memory(const RunConfig& config, int64_t seq_len, const Layout& layout);

}  // namespace athanor
