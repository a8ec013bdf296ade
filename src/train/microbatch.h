#pragma once
// A batch as the model takes it: microbatches of tokens, targets, document boundaries and loss scales.

#include <vector>

#include "arch/layout.h"
#include "config/run_config.h"
#include "data/loader.h"
#include "parallel/stage.h"

namespace athanor {

/// Cuts a batch into microbatches of config.train.micro_batch_size sequences (the last may be smaller). A token's
/// target is the next token of its instance; the last has none. Scales divide by the whole batch's targets, tokens and
/// sequences.
/// @param step  number of the update, for random numbers. @param eos_id  ends a document; used where
/// data.attention_scope is "document".
std::vector<Microbatch> split_batch(const Batch& batch, const RunConfig& config, uint32_t eos_id, int64_t step = 0);

/// Some of them, by their numbers; the batch must hold their sequences.
std::vector<Microbatch> pick_microbatches(const Batch& batch, const std::vector<int64_t>& numbers,
                                          const RunConfig& config, uint32_t eos_id);

/// Those of one data rank, which must hold their sequences (sequences_of).
std::vector<Microbatch> split_batch(const Batch& batch, const RunConfig& config, uint32_t eos_id, int64_t step,
                                    const Layout& layout, int data_rank);

/// The sequences of a batch that a data rank trains on, ascending.
std::vector<int64_t> sequences_of(const Layout& layout, int data_rank, int64_t micro_batch_size);

}  // namespace athanor
