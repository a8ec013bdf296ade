#include "train/verify/bf16_run.h"

#include <limits>

namespace athanor {

bool is_measured(const RunConfig& small) { return small.train.dtype == "bfloat16"; }

void prepare_measured_run(RunConfig& small) { small.moe.router_noise = std::numeric_limits<double>::infinity(); }

RunConfig make_truth_run(const RunConfig& one) {
  RunConfig truth = one;
  truth.train.dtype = truth.train.reduce_dtype = "float32";
  return truth;
}

}  // namespace athanor
