#pragma once
// An optimizer: it declares the state that it keeps and what it needs, and updates the parameters of its groups bucket
// by bucket.
//
// A step calls, in this order:
//   second_backward     If it returns labels, forward and backward run on these, and then learn_from_second is called.
//                       After that, the step's own forward and backward run at the same weights.
//   begin               It is called once, when the step's gradients have been summed over ranks.
//   apply               It is called for each bucket in the order of forward (for one rank, once for all of flat
//                       memory). The weights of a bucket are sent while the next one is updated.
// begin and apply are not called if the step is refused (train/step_guard.h). Gradients are in ParameterStore::grad:
// in learn_from_second, begin and apply a rank has their sums for the elements that it owns, and zeros elsewhere.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimized_parameters.h"

namespace athanor::inline optim {

struct Update {
  int64_t step = 0;       ///< number of the update in the run, from 1
  double lr = 0;          ///< learning rate of the step (schedule.h); the optimizer multiplies it by a group's lr_scale
  double grad_scale = 1;  ///< the optimizer multiplies the gradients by it (gradient_norm.h)
  /// Used if the parameters are on a device, in place of grad_scale and of what apply returns: the host need not know
  /// these numbers before it queues the update. A grad_scale of NaN refuses the step.
  ops::OnDevice on_device = {};
};

/// One kind of an optimizer's state on this rank.
struct HeldState {
  StateKind kind;
  /// [OptimizedParameters::state_size], [OptimizedParameters::num_matrices] or [1], by kind.extent; type by kind.type.
  Tensor values;
};

/// The labels of a second backward. The function gets a target's sequence (in the global batch, from 0), its position
/// in the sequence (from 0), and its label in the batch, and returns its new label. It must depend on these alone, so
/// that the layout does not change it. It is not called for positions without a target. A null function draws each
/// label from the model's own probabilities (ops/label_draw.h).
using OtherLabels = std::function<int64_t(int64_t sequence, int64_t position, int64_t label)>;

class Optimizer {
 public:
  /// Allocates the declared state, zero.
  Optimizer(OptimizerDeclaration declaration, OptimizedParameters parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const OptimizerDeclaration& declaration() const { return declaration_; }
  const OptimizedParameters& parameters() const { return parameters_; }
  const std::vector<HeldState>& state() const { return state_; }
  /// Returns the values of the kind of state with this StateKind::name. @throws Error if none is declared.
  const Tensor& state(const std::string& kind) const;

  /// See OptimizedParameters::set_fresh_since.
  void set_fresh_since(const std::map<std::string, int64_t>& step_of_parameter) {
    parameters_.set_fresh_since(step_of_parameter);
  }

  /// Returns the other labels if the optimizer learns from a second backward at update `step` of the run. Every rank
  /// must decide the same. It is called only if the declaration has needs.second_backward.
  /// @param is_first  it is the first update of some of its parameters, on whichever rank, since their state was zero.
  virtual std::optional<OtherLabels> second_backward(int64_t /*step*/, bool /*is_first*/) const { return std::nullopt; }
  /// Takes the gradients of the second backward, without clipping. The step sets them to zero afterwards. The state
  /// must not change before begin: the step may be refused.
  /// @param num_targets  in the global batch: the gradients are those of a mean over this number.
  virtual void learn_from_second(int64_t /*step*/, int64_t /*num_targets*/) {}

  /// Does what has to happen before any bucket is updated. It may replace the owned elements of its parameters'
  /// gradient by other values for `apply`. All ranks call it together; it is collective if it uses a service
  /// (OptimizerServices).
  virtual void begin(const Update& /*update*/) {}

  /// Applies the update to the owned elements of its parameters in `range` of flat memory: the master changes, and the
  /// weights that forward reads are rounded from it. The gradients of these elements are set to zero. Not collective.
  /// @return the number of weights on this rank whose value, as forward reads it, changed; 0 on a device, where
  /// on_device.changed has it.
  virtual int64_t apply(const Update& update, FlatRange range) = 0;
  /// Returns the names of what it counts among the elements that it updates.
  virtual std::vector<std::string> count_names() const { return {}; }
  /// Returns the counts of the last update, int64 [count_names()], where the parameters are: over the elements that
  /// this rank counts (ShardPlan::canonical), so that sums over ranks count each element once. Undefined if there are
  /// none.
  virtual Tensor counts() const { return {}; }

  /// Applies the update to all owned elements.
  int64_t apply(const Update& update) { return apply(update, {0, parameters_.store().flat_size()}); }

 private:
  OptimizerDeclaration declaration_;
  OptimizedParameters parameters_;
  std::vector<HeldState> state_;
};

}  // namespace athanor::inline optim
