#pragma once
// The loss on held-out instances.

#include "config/run_config.h"
#include "dataset/dataset.h"
#include "model/model_state.h"

namespace athanor::inline run {

/// Returns, on every rank, the mean cross entropy per target, in nats, over the first `num_sequences` instances of the
/// split, or over all if it has fewer. The training state stays untouched: no gradients, no counts. Collective over the
/// model's mesh: data ranks share the microbatches, and each scores the same number of them.
/// @param eos_id  ends a document; used if data.attention_scope is "document".
/// @throws UnreadableData on all ranks if one cannot read.
double validation_loss(ModelState& model, const Dataset& validation, int64_t num_sequences, const RunConfig& config,
                       uint32_t eos_id);

/// Returns, on every rank, the unigram entropy of the split's targets, in nats (dataset/dataset.h). Collective over the
/// mesh: each rank reads an equal part of the split.
/// @param worked  is told the bytes read, while the others wait.
/// @throws UnreadableData on all ranks if one cannot read.
double unigram_entropy(const Dataset& dataset, const Mesh& mesh, const Worked& worked = {});

}  // namespace athanor::inline run
