#pragma once
// Sophia-G: the mean gradient divided by a mean of estimates of the Hessian's diagonal, and clipped. Source: Liu et al.
// 2023, algorithms 2 (Gauss-Newton-Bartlett) and 3.
//
// Every hessian_interval steps, from the first on, and in the first update of fresh state, there is a second forward
// and backward. Its labels are drawn from the model's own probabilities. The number of targets times the squared
// gradient estimates the diagonal. The estimate counts if the step is not refused, and an element of it if that is
// finite; until then it takes as much memory as the Hessian.

#include "config/run_config.h"
#include "optim/optimizer.h"
#include "parallel/shard_plan.h"

namespace athanor::inline optim {

class SophiaG : public Optimizer {
 public:
  /// @param config  gives betas, rho and hessian_interval.
  /// @param plan  must outlive this.
  SophiaG(const OptimizerConfig& config, OptimizedParameters parameters, const ShardPlan& plan);

  std::optional<OtherLabels> second_backward(int64_t step, bool is_first) const override;
  void learn_from_second(int64_t step, int64_t num_targets) override;
  void begin(const Update& update) override;
  int64_t apply(const Update& update, FlatRange range) override;
  using Optimizer::apply;

  /// Returns the Hessian that the update of this step will take; undefined unless the step has learned from a second
  /// backward.
  const Tensor& estimated() const { return estimated_; }

  /// Elements whose step was clipped to 1.
  std::vector<std::string> count_names() const override { return {"clipped"}; }
  Tensor counts() const override { return counts_; }

 private:
  double beta1_, beta2_, rho_;
  int64_t interval_;
  const ShardPlan& plan_;
  Tensor counts_, uncounted_;
  Tensor estimated_;  // the Hessian with the estimate of step estimate_step_, which that step's update takes
  int64_t estimate_step_ = 0;
};

}  // namespace athanor::inline optim
