#pragma once
// What computing activations again in backward saves of memory and costs in time.

#include "cli/core/bench_report.h"
#include "data/loader.h"
#include "train/train_state.h"

namespace athanor::bench {

/// Forward and backward of a batch without recomputation and with each kind of it, in turns: memory of the CPU's
/// tensors that was in use at most, beyond what was in use before, and the time. Leaves gradients zero.
/// @param fields  of the step, which each line of the report has, too.
void report_recompute(TrainState& state, const Batch& batch, const BenchArguments& given, const nlohmann::json& fields,
                      const Limit& limit, Report& report);

}  // namespace athanor::bench
