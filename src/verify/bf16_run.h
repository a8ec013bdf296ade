#pragma once
// The differences between a small run in bf16 and one in fp32, which make a close comparison possible.
//
// A token near a tie between two experts goes to one expert in one run and to the other in the other run, and that
// changes every gradient before it. In bf16 there are too many such tokens for a comparison. So a run in bf16 chooses
// experts by counters (moe.router_noise = inf): the choices are the same in every run, whatever rounding does to
// scores. The comparison in fp32 shows that scores lead to the same choices.

#include "config/run_config.h"

namespace athanor::inline verify {

/// Returns true if a small run's rounding is measured (measured.h) rather than bounded (noise.h): in bf16.
bool is_measured(const RunConfig& small);

/// Makes the run choose experts by counters, and raises model.clip_qkv, if it is set, so that it clips nothing.
void prepare_measured_run(RunConfig& small);

/// Returns the run in fp32 that both the layout and one rank are compared with.
/// @param one  the run of one rank in bf16 (make_reference_run).
RunConfig make_truth_run(const RunConfig& one);

}  // namespace athanor::inline verify
