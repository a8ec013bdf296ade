#pragma once
// Cuts a batch into microbatches, as the model takes them: tokens, targets, document boundaries and loss scales.

#include <vector>

#include "config/run_config.h"
#include "dataset/loader.h"
#include "layout/layout.h"
#include "optim/optimizer.h"
#include "parallel/stage.h"

namespace athanor::inline train {

/// Cuts a whole batch into microbatches of config.train.micro_batch_size sequences (the last may be smaller). A token's
/// target is the next token of its instance; the last token has none. Scales (Labels) divide by the number of targets,
/// tokens and sequences of the whole batch.
/// @param eos_id  ends a document; used if data.attention_scope is "document".
/// @param step  number of the update in the run, for random numbers.
std::vector<Microbatch> split_batch(const Batch& batch, const RunConfig& config, uint32_t eos_id, int64_t step = 0);

/// Gives every target the label that `labels` returns, or has it drawn if that is null; and drops the router losses, so
/// that the gradient is that of the loss on these labels alone.
/// @param seed  of the run: with the number of the step it is the key of the drawn numbers.
void relabel(Microbatch& microbatch, const OtherLabels& labels, int64_t seed);

/// Returns the microbatches with these numbers: microbatch n begins with sequence n · micro_batch_size of the batch,
/// which must hold their sequences. Their step is 0, as for evaluation.
std::vector<Microbatch> pick_microbatches(const Batch& batch, const std::vector<int64_t>& numbers,
                                          const RunConfig& config, uint32_t eos_id);

/// Returns the microbatches of one data rank, of Layout::microbatches(); the batch must hold their sequences
/// (sequences_of).
std::vector<Microbatch> split_batch(const Batch& batch, const RunConfig& config, uint32_t eos_id, int64_t step,
                                    const Layout& layout, int data_rank);

/// Moves tokens, targets and tables of documents of all microbatches to a device, in one copy. The host does not wait.
void send_to(at::Device device, std::vector<Microbatch>& microbatches);

/// Sets tokens, targets and tables of documents to views of `packed`, which send_to made for a microbatch of the shapes
/// that they have.
void view_packed(const Tensor& packed, Tensor& tokens, Labels& labels);

/// Returns the indices, in the global batch, of the sequences that a data rank trains on, ascending.
std::vector<int64_t> sequences_of(const Layout& layout, int data_rank, int64_t micro_batch_size);

}  // namespace athanor::inline train
