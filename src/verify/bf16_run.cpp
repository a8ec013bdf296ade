#include "verify/bf16_run.h"

#include "config/precision.h"

#include <algorithm>
#include <limits>

namespace athanor::inline verify {

bool is_measured(const RunConfig& small) { return precision_of(small).rounds_weights(); }

void prepare_measured_run(RunConfig& small) {
  constexpr double kClipsNothing = 1e3;  // in a small model, queries, keys and values are of size 1
  small.moe.router_noise = std::numeric_limits<double>::infinity();
  if (small.model.clip_qkv > 0) small.model.clip_qkv = std::max(small.model.clip_qkv, kClipsNothing);
}

RunConfig make_truth_run(const RunConfig& one) {
  RunConfig truth = one;
  truth.train.dtype = truth.train.reduce_dtype = name_of(NumberType::kFloat32);
  return truth;
}

}  // namespace athanor::inline verify
