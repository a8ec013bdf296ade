#pragma once
// Computes in double precision, without buckets, shards or kernels, what AdamW makes of the gradients that a run
// recorded.
//
// A run's parameters follow from its own gradients except for fp32's rounding, in whatever type the gradients were
// computed. So an update that some rank makes from other gradients, twice or not at all, is seen in a bf16 run as
// clearly as in an fp32 run.

#include <vector>

#include "arch/inventory.h"
#include "config/run_config.h"

namespace athanor {

/// The replay of one parameter.
class AdamReplay {
 public:
  /// @param master  the initial master weights of the whole parameter, row-major.
  AdamReplay(const RunConfig& config, const ParameterSpec& spec, const std::vector<float>& master);

  /// Makes update `step`; the steps are 1, 2, 3, …. Gradients are clipped at every step.
  /// @param lr         learning rate of the step, before the lr_scale of the parameter's group.
  /// @param grad_norm  norm over the whole model, before clipping.
  /// @param grad       gradient of the whole parameter, summed over the batch, before clipping.
  void add_step(int64_t step, double lr, double grad_norm, const std::vector<float>& grad);

  /// Returns the master weights after the updates so far.
  const std::vector<double>& master() const { return master_; }
  /// Returns for each element a bound on the absolute rounding error that a master in fp32 has after these updates.
  const std::vector<double>& bound() const { return bound_; }

 private:
  OptimizerConfig config_;
  double lr_scale_ = 1;
  std::vector<double> master_, exp_avg_, exp_avg_sq_, bound_;
};

}  // namespace athanor
