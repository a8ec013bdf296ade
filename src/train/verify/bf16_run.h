#pragma once
// What a small run in bf16 does otherwise than one in fp32, so that it can be compared closely.
//
// A token that stands near a tie between two experts goes to another one in one run than in the other, and changes
// every gradient before it. In bf16 so many do that nothing could be told from it. So experts are chosen by counters
// there (moe.router_noise = inf): in every run the same, whatever rounding does to scores. That scores choose alike is
// what fp32 shows.

#include "config/run_config.h"

namespace athanor {

/// Whether rounding is measured (measured.h) rather than bounded (noise.h).
bool is_measured(const RunConfig& small);

/// Makes choices those of counters, and clips nothing.
void prepare_measured_run(RunConfig& small);

/// The run in fp32 that both the layout and one rank are held against.
RunConfig make_truth_run(const RunConfig& one);

}  // namespace athanor
