#pragma once
// LAMB: Adam's direction, scaled for each matrix by the ratio of the norms of weights and direction, so that layers of
// any scale move by the same share in large batches. Source: You et al. 2020, algorithm 2, with φ the identity.
//
// A matrix is a parameter or one expert of a stack; a norm's scale counts as one. The norms are over whole matrices,
// whichever ranks own their elements.

#include "config/run_config.h"
#include "ops/lamb.h"
#include "optim/optimizer.h"
#include "optim/tensor_sums.h"

namespace athanor::inline optim {

class Lamb : public Optimizer {
 public:
  /// @param config  gives betas and eps.
  /// @param sums, plan  must outlive this.
  Lamb(const OptimizerConfig& config, OptimizedParameters parameters, const TensorSums& sums, const ShardPlan& plan);

  /// Updates the moments, leaves the directions in the gradients' memory, and computes the ratios. Collective: one
  /// TensorSums::add_up of two numbers for each matrix of the model.
  void begin(const Update& update) override;
  /// Both passes read 24 bytes an owned element, where AdamW reads 16, and write 20 (AdamW: 16).
  int64_t apply(const Update& update, FlatRange range) override;
  using Optimizer::apply;

  /// The ratio of each matrix of the model in the last update, fp32, where the parameters are: ‖w‖ / ‖direction‖, or 1
  /// if either is 0. Those of matrices that this optimizer does not update are 1.
  const Tensor& trust_ratios() const { return ratios_; }

 private:
  struct Rule {
    OptimizedParameters::Segment settings;  // the range is that of the first part
    ops::MatrixParts parts;
  };
  void find_rules();
  std::vector<kernels::MatrixPart> parts_of(const Bucket& bucket, FlatRange owned, int64_t state_begin) const;

  double beta1_, beta2_, eps_;
  const TensorSums& sums_;
  const ShardPlan& plan_;
  std::vector<Rule> rules_;
  Tensor ratios_;
};

}  // namespace athanor::inline optim
