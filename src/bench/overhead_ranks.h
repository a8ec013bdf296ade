#pragma once
// athanor bench overhead CONFIG.toml --ranks N: the host time of the framework in a step of a layout.

#include "bench/arguments.h"
#include "bench/report.h"

namespace athanor::bench {

/// Measures, for each rank of one data rank's model, the processor time of a step's main thread, and the part of it
/// that is spent outside stages, norms and update, which compute.
void measure_overhead_of_ranks(const BenchOverheadArguments& given, Report& report);

}  // namespace athanor::bench
