#pragma once
// Times Muon's products: Newton and Schulz's iteration of stacks of matrices, as a share of the GEMM peak, and against
// the same iteration as torch.optim.Muon computes it.

#include "bench/arguments.h"
#include "bench/report.h"

namespace athanor::bench {

void measure_orthogonalize(at::ScalarType dtype, const BenchOptimizerArguments& given, at::Device device,
                           Report& report);

}  // namespace athanor::bench
