#pragma once
// An optimizer: it declares the state that it keeps and what it needs, and updates the parameters of its groups bucket
// by bucket.
//
// A step calls, in this order:
//   second_backward     if it asks for one: forward and backward run on other labels, and learn_from_second gets the
//                       gradients. Then the step's own forward and backward run at the same weights.
//   begin               with the step's gradients, summed over ranks: what has to happen before any bucket is updated
//   apply               for each bucket; the weights of one travel while the next is updated
// Every rank has the values of the gradient only for the elements that it owns; the others are zero.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optim/optimized_parameters.h"

namespace athanor {

struct Update {
  int64_t step = 0;       ///< 1-based
  double lr = 0;          ///< the step's; a group's lr_scale is applied to it
  double grad_scale = 1;  ///< factor of the gradients: clipping
};

/// One kind of an optimizer's state on this rank.
struct HeldState {
  StateKind kind;
  /// [OptimizedParameters::state_size], [OptimizedParameters::num_matrices] or [1], by the kind's extent.
  Tensor values;
};

/// The labels of a second backward: the label of a target, from its sequence (counted in the global batch), its
/// position in it, and the label that it has in the batch. A function of these alone, so that the layout does not
/// change it.
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
  /// Returns the values of a declared kind. @throws Error if there is none of that name.
  const Tensor& state(const std::string& kind) const;

  /// See OptimizedParameters::set_fresh_since.
  void set_fresh_since(const std::map<std::string, int64_t>& step_of_parameter) {
    parameters_.set_fresh_since(step_of_parameter);
  }

  /// Returns the other labels if the optimizer learns from a second backward at this step. Every rank decides the same.
  virtual std::optional<OtherLabels> second_backward(int64_t /*step*/) const { return std::nullopt; }
  /// Takes the gradients of the second backward. The step sets them to zero afterwards.
  virtual void learn_from_second(int64_t /*step*/) {}

  /// Does what has to happen before any bucket is updated. It may change the owned elements of the gradient of its
  /// parameters: what `apply` finds there is its own. Collective over all ranks if the declaration has needs.
  virtual void begin(const Update& /*update*/) {}

  /// Applies the update to the owned elements of its parameters in `range` of flat memory: the master changes, and the
  /// weights that forward reads are rounded from it. Gradients are used and set to zero. Not collective.
  /// @return how many weights changed, as forward reads them.
  virtual int64_t apply(const Update& update, FlatRange range) = 0;
  /// Applies the update to all owned elements.
  int64_t apply(const Update& update) { return apply(update, {0, parameters_.store().flat_size()}); }

 private:
  OptimizerDeclaration declaration_;
  OptimizedParameters parameters_;
  std::vector<HeldState> state_;
};

}  // namespace athanor
