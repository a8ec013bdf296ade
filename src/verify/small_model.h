#pragma once
// The small run that represents a user's run: the same layout, kinds and rules, with as little to compute as they
// allow.

#include "config/run_config.h"
#include "dataset/loader.h"
#include "layout/layout.h"

namespace athanor::inline verify {

struct VerifyOptions {
  int64_t steps = 3;
  std::string dtype = "float32";  ///< type of forward and backward, whatever train.dtype is
  bool keep_size = false;         ///< keep the configuration's own model, batch, sequence length and buckets
  bool keep_depth = false;        ///< keep all of its layers, and as many buckets as the run has
};

/// Makes the small run from the configuration of the user's run, of which it represents the first training phase.
///
/// It keeps what decides how a step is computed: family, kinds of layers, tied or not, experts and choices, routing,
/// balance, recomputation, dispatch, sharding, mapping, degrees and schedule. Many experts become the smallest
/// sufficient multiple of the expert degree. It also keeps which stage has which kinds of layers, and whether tensor
/// ranks share key heads or hold the same ones. It shrinks widths, heads, layers, vocabulary, sequences and batch, and
/// leaves two microbatches to each data rank, so that gradients accumulate, or as many as a pipeline needs. Initial
/// weights are widened so that activations are as large as in the model. The learning rate is constant from the first
/// step on. Nothing is loaded, saved or measured.
/// @throws ConfigError with every fault of the layout, if it does not fit, or if one rank cannot do alone what it does;
/// CheckpointError if the folder in model.from is no model.
RunConfig make_small_run(const RunConfig& config, int world_size, const VerifyOptions& options);

/// Returns the same run for one rank, on the CPU: degrees of 1; balance groups that spanned ranks lie within its
/// microbatch.
RunConfig make_reference_run(const RunConfig& small);

/// Returns the whole batch of update `step` (from 1): token ids from counters, of which low ones are more frequent, as
/// in text, with document ends (token 0) among them. `draw` selects one of many such data sets.
Batch make_verify_batch(const RunConfig& small, int64_t step, uint64_t draw);

// Gives the small run as many gradient buckets as the real run has, so that as many collectives are in flight at once.

/// Returns the number of gradient buckets of the rank that has most of them. (Ranks with the same pipeline coordinate
/// have the same number.)
int64_t count_buckets(const RunConfig& config, const Layout& layout);

/// Returns the parallelism.bucket_mb with which `small`, which has all layers of `whole`, has as many buckets as that.
/// It has a few more if its tensors' other sizes allow no equal number.
/// @param layout  of both runs.
double bucket_mb_for_as_many(const RunConfig& small, const RunConfig& whole, const Layout& layout);

// The differences between a small run in bf16 and one in fp32, which make a close comparison possible.
//
// A token near a tie between two experts goes to one expert in one run and to the other in the other run, and that
// changes every gradient before it. In bf16 there are too many such tokens for a comparison. So a run in bf16 chooses
// experts by counters (moe.router_noise = inf): the choices are the same in every run, whatever rounding does to
// scores. The comparison in fp32 shows that scores lead to the same choices.

/// Returns true if a small run's rounding is measured (measured.h) rather than bounded (noise.h): in bf16.
bool is_measured(const RunConfig& small);

/// Makes the run choose experts by counters, and raises model.clip_qkv, if it is set, so that it clips nothing.
void prepare_measured_run(RunConfig& small);

/// Returns the run in fp32 that both the layout and one rank are compared with.
/// @param one  the run of one rank in bf16 (make_reference_run).
RunConfig make_truth_run(const RunConfig& one);

}  // namespace athanor::inline verify
