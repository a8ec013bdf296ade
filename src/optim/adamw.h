#pragma once
// AdamW: one pass over flat memory updates the fp32 master (in bf16 its two halves, parallel/parameters.h) and the
// moments of the elements that this rank owns. Source: Loshchilov and Hutter 2019. Unless a configuration excludes
// some, all parameters decay, as in the recipe of Optimus (§2.1).

#include "config/run_config.h"
#include "kernels/adamw.h"
#include "optim/optimizer.h"

namespace athanor::inline optim {

class AdamW : public Optimizer {
 public:
  /// @param config  gives betas and eps. Updates have the learning rate, and the groups of `parameters` the decay.
  AdamW(const OptimizerConfig& config, OptimizedParameters parameters);
  /// The only optimizer of a run: it updates all of `store`, which must outlive it.
  AdamW(const OptimizerConfig& config, ParameterStore& store);

  /// The bias of a parameter's moments is corrected for the number of updates that they hold. Each owned element costs
  /// 32 bytes of memory traffic, in fp32 and in bf16: master, gradient and two moments are read and written.
  int64_t apply(const Update& update, FlatRange range) override;
  using Optimizer::apply;

  // The first and the second moment: [OptimizedParameters::state_size] fp32.
  const Tensor& exp_avg() const { return state()[0].values; }
  const Tensor& exp_avg_sq() const { return state()[1].values; }

 private:
  int64_t update(const kernels::AdamwStep& rule, FlatRange range, int64_t state_begin, const Update& given) const;

  OptimizerConfig config_;
};

}  // namespace athanor::inline optim
