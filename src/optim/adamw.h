#pragma once
// AdamW over flat buckets in one pass: the fp32 master (or its two halves) and moments of the elements that this rank
// owns. Source: Loshchilov and Hutter 2019; the paper's recipe decays all parameters (Optimus §2.1).

#include <map>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "kernels/adamw.h"
#include "parallel/parameters.h"

namespace athanor {

class AdamW {
 public:
  /// `parameters` must outlive the optimizer. Moments are allocated here, zero.
  AdamW(const OptimizerConfig& config, const ParameterStore& parameters);

  /// Sets, for each parameter whose moments have not been kept since the beginning of the run, the step after which
  /// they were zero: its updates are counted from there. Parameters that this rank does not hold are ignored.
  void set_fresh_since(const std::map<std::string, int64_t>& step_of_parameter);

  /// Applies update `step` (1-based) of the run to the owned elements in `range` of flat memory. The bias of a
  /// parameter's moments is corrected for the number of updates that they hold. Gradients are multiplied by grad_scale,
  /// used and set to zero; the master changes, and the weights that forward reads are rounded from it. Memory traffic:
  /// 28 or, in bf16, 32 bytes for each parameter.
  /// @return how many weights changed, as forward reads them.
  int64_t step(int64_t step, double lr, double grad_scale, FlatRange range);
  /// Applies the update to all owned elements.
  int64_t step(int64_t step, double lr, double grad_scale) {
    return this->step(step, lr, grad_scale, {0, parameters_.flat_size()});
  }

  const Tensor& exp_avg() const { return exp_avg_; }        ///< [state_size] fp32: ParameterStore::owned
  const Tensor& exp_avg_sq() const { return exp_avg_sq_; }  ///< [state_size] fp32

 private:
  // Neighbouring parameters with equal weight decay.
  struct Segment {
    FlatRange range;
    bool decayed;
  };
  // Neighbouring parameters with the same number of updates: the run's, less `since`.
  struct Age {
    FlatRange range;
    int64_t since;
  };
  int64_t update(const kernels::AdamwStep& update, FlatRange range, int64_t state) const;

  OptimizerConfig config_;
  const ParameterStore& parameters_;
  std::vector<Segment> segments_;
  std::vector<Age> ages_;
  Tensor exp_avg_, exp_avg_sq_;
};

}  // namespace athanor
