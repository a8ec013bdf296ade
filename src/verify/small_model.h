#pragma once
// The small run that represents a user's run: the same layout, kinds and rules, with as little to compute as they
// allow.

#include "dataset/loader.h"
#include "layout/layout.h"

namespace athanor::inline verify {

struct VerifyOptions {
  int64_t steps = 3;
  std::string dtype = "float32";  ///< type of forward and backward, whatever train.dtype is
  bool keep_size = false;         ///< keep the configuration's own model, batch, sequence length and buckets
  bool keep_depth = false;        ///< keep all of its layers, and as many buckets as the run has (small_buckets.h)
};

/// Makes the small run from the configuration of the user's run, of which it represents the first training phase.
///
/// It keeps what decides how a step is computed: family, kinds of layers, tied or not, experts and choices (many
/// experts become the smallest sufficient multiple of the expert degree), routing, balance, recomputation, dispatch,
/// sharding, mapping, degrees, schedule, which stage has which kinds of layers, whether tensor ranks share key heads or
/// hold the same ones. It shrinks widths, heads, layers, vocabulary, sequences and batch, and leaves two microbatches
/// to each data rank, so that gradients accumulate, or as many as a pipeline needs. Initial weights are widened so that
/// activations are as large as in the model. The learning rate is constant from the first step on. Nothing is loaded,
/// saved or measured.
/// @throws ConfigError with every fault of the layout, if it does not fit, or if one rank cannot do alone what it does;
/// CheckpointError if the folder in model.from is no model.
RunConfig make_small_run(const RunConfig& config, int world_size, const VerifyOptions& options);

/// Returns the same run for one rank, on the CPU: degrees of 1; balance groups that spanned ranks lie within its
/// microbatch.
RunConfig make_reference_run(const RunConfig& small);

/// Returns the whole batch of update `step` (from 1): token ids from counters, of which low ones are more frequent, as
/// in text, with document ends (token 0) among them. `draw` selects one of many such data sets.
Batch make_verify_batch(const RunConfig& small, int64_t step, uint64_t draw);

}  // namespace athanor::inline verify
