#pragma once
// AdamW over flat buckets in one pass: the fp32 master (or its two halves) and moments of the elements that this rank
// owns. Source: Loshchilov and Hutter 2019; the paper's recipe decays all parameters (Optimus §2.1).

#include "config/run_config.h"
#include "kernels/adamw.h"
#include "optim/optimizer.h"

namespace athanor {

class AdamW : public Optimizer {
 public:
  AdamW(const OptimizerConfig& config, OptimizedParameters parameters);
  /// The only optimizer of a run: it updates all of `store`, which must outlive it.
  AdamW(const OptimizerConfig& config, ParameterStore& store);

  /// The bias of a parameter's moments is corrected for the number of updates that they hold. Memory traffic: 28 or, in
  /// bf16, 32 bytes for each parameter.
  int64_t apply(const Update& update, FlatRange range) override;
  using Optimizer::apply;

  const Tensor& exp_avg() const { return state()[0].values; }     ///< fp32
  const Tensor& exp_avg_sq() const { return state()[1].values; }  ///< fp32

 private:
  int64_t update(const kernels::AdamwStep& rule, FlatRange range, int64_t state_begin) const;

  OptimizerConfig config_;
};

}  // namespace athanor
