#pragma once
// Measures what recomputation of activations in backward saves in memory and costs in time.

#include "bench/report.h"
#include "dataset/loader.h"
#include "train/train_state.h"

namespace athanor::bench {

/// Runs forward and backward of a batch without recomputation and with each kind of it, alternately, and reports for
/// each the time and the peak of the CPU tensors' memory above what was in use before. Leaves gradients zero.
/// @param fields  fields of the step, which each line of the report repeats.
void report_recompute(TrainState& state, const Batch& batch, const BenchArguments& given, const nlohmann::json& fields,
                      const Limit& limit, Report& report);

}  // namespace athanor::bench
