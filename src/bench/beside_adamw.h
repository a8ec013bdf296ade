#pragma once
// Times an update of an optimizer in turns with one of AdamW, of the same parameters: layers of a dense model.

#include "bench/arguments.h"
#include "bench/report.h"

namespace athanor::bench {

void measure_beside_adamw(at::ScalarType dtype, const BenchOptimizerArguments& given, at::Device device,
                          Report& report);

}  // namespace athanor::bench
