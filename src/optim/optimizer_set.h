#pragma once
// The optimizers of a run: each parameter group has one, and each optimizer keeps state for its groups alone.

#include <memory>
#include <vector>

#include "optim/optimizer.h"
#include "optim/tensor_sums.h"
#include "optim/whole_matrices.h"

namespace athanor {

/// What the ranks do together for optimizers. A service is null unless an optimizer of the run declares the need.
struct OptimizerServices {
  std::unique_ptr<TensorSums> sums;
  std::unique_ptr<WholeMatrices> matrices;
};

/// The plan of a run's optimizers, and the function that makes each of them. The services outlive the optimizer.
struct OptimizerSetup {
  OptimizerPlan plan;
  std::function<std::unique_ptr<Optimizer>(const OptimizerDeclaration& declaration, OptimizedParameters parameters,
                                           const OptimizerServices& services)>
      make;
};
/// Returns the setup of a configuration.
OptimizerSetup configured_optimizers(const OptimizerConfig& config);

class OptimizerSet {
 public:
  /// Makes the optimizers and the services that they need. The references must outlive this. Collective if an optimizer
  /// needs whole matrices. @throws ConfigError if more than one asks for a second backward.
  OptimizerSet(OptimizerSetup setup, const ModelConfig& model, ParameterStore& store, const ShardPlan& shards);

  const OptimizerPlan& plan() const { return plan_; }
  const std::vector<std::unique_ptr<Optimizer>>& optimizers() const { return optimizers_; }
  /// Returns the bytes of state on this rank.
  int64_t state_bytes() const;

  // These call the functions of Optimizer for every optimizer, in the order of the plan.
  void set_fresh_since(const std::map<std::string, int64_t>& step_of_parameter);
  std::optional<OtherLabels> second_backward(int64_t step) const;
  void learn_from_second(int64_t step);
  void begin(const Update& update);
  int64_t apply(const Update& update, FlatRange range);

 private:
  OptimizerPlan plan_;
  OptimizerServices services_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
};

}  // namespace athanor
