#pragma once
// What AdamW makes of the gradients that a run recorded, in double precision and without buckets, shards or kernels.
//
// A run's parameters follow from its own gradients but for fp32's rounding, in whatever type these were computed. So
// an update that some rank makes of other gradients, twice or not at all, is seen in bf16 as sharply as in fp32.

#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// Of one parameter.
class AdamReplay {
 public:
  /// @param name  which optimizer.no_weight_decay may match. @param master  initial.
  AdamReplay(const OptimizerConfig& config, const std::string& name, const std::vector<float>& master);

  /// Update `step` (1-based). @param grad_norm  of the whole model, by which gradients are clipped.
  void add_step(int64_t step, double lr, double grad_norm, const std::vector<float>& grad);

  const std::vector<double>& master() const { return master_; }
  /// Of each element: what fp32 rounds off, summed over the steps.
  const std::vector<double>& bound() const { return bound_; }

 private:
  OptimizerConfig config_;
  std::vector<double> master_, exp_avg_, exp_avg_sq_, bound_;
};

}  // namespace athanor
