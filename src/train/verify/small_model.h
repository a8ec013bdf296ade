#pragma once
// The small run that stands for a user's: the same layout, kinds and rules, with as little to compute as they allow.

#include "arch/layout.h"
#include "data/loader.h"

namespace athanor {

struct VerifyOptions {
  int64_t steps = 3;
  std::string dtype = "float32";  ///< of forward and backward, whatever train.dtype is
  bool keep_size = false;         ///< the configuration's own sizes
  bool keep_depth = false;        ///< all of its layers, and as many buckets as the run has (small_buckets.h)
};

/// Keeps what decides how a step is computed: family, kinds of layers, tied or not, experts and choices (experts become
/// the smallest multiple of the expert degree that does where they are many), routing, balance, recomputation,
/// dispatch, sharding, mapping, degrees, schedule, which stage has which kinds of layers, whether tensor ranks share
/// key heads or hold the same ones. Shrinks widths, heads, layers, vocabulary, sequences and batch, and leaves two
/// microbatches to each data rank, so that gradients accumulate, or as many as a pipeline needs. Initial weights are
/// widened so that activations are as large as in the model. The learning rate is constant from the first step on.
/// Nothing is loaded, saved or measured.
/// @throws ConfigError with every fault of the layout, if it does not fit, or if no rank can do alone what it does.
RunConfig make_small_run(const RunConfig& config, int world_size, const VerifyOptions& options);

/// The same run for one rank: degrees of 1; balance groups that spanned ranks lie within its microbatch.
RunConfig make_reference_run(const RunConfig& small);

/// The batch of an update (1-based): token ids from counters, as rare and frequent as words are, with document ends
/// (token 0) among them. `draw` chooses one of many such data sets.
Batch make_verify_batch(const RunConfig& small, int64_t step, uint64_t draw);

}  // namespace athanor
