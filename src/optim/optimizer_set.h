#pragma once
// The optimizers of a run: each parameter group has one, and an optimizer keeps state only for its groups' parameters.

#include <memory>
#include <set>
#include <vector>

#include "optim/home_matrices.h"
#include "optim/optimizer.h"
#include "optim/qk_clip.h"
#include "optim/tensor_sums.h"

namespace athanor::inline optim {

/// What the ranks do together for optimizers. A service is null unless an optimizer of the run declares the need.
struct OptimizerServices {
  const ShardPlan* plan = nullptr;  ///< never null for an optimizer
  std::unique_ptr<TensorSums> sums;
  std::unique_ptr<HomeMatrices> homes;
};

/// The plan of a run's optimizers, and the function that makes each of them.
struct OptimizerSetup {
  OptimizerPlan plan;
  /// Called once for each of plan.optimizers, with its parameters. The services outlive the optimizer.
  std::function<std::unique_ptr<Optimizer>(const OptimizerDeclaration& declaration, OptimizedParameters parameters,
                                           const OptimizerServices& services)>
      make;
  double qk_clip = 0;  ///< optimizer.qk_clip
};
/// Returns the setup of a configuration, with rates as they are given.
OptimizerSetup configured_optimizers(const OptimizerConfig& config);
/// The same, with the rates that follow the width of the model (layout/width_groups.h).
OptimizerSetup configured_optimizers(const RunConfig& config);

class OptimizerSet {
 public:
  /// Makes the optimizers and the services that they need. `store` and `shards` must outlive this.
  /// @throws ConfigError if more than one needs a second backward.
  OptimizerSet(OptimizerSetup setup, const ModelConfig& model, ParameterStore& store, const ShardPlan& shards);

  const OptimizerPlan& plan() const { return plan_; }
  const std::vector<std::unique_ptr<Optimizer>>& optimizers() const { return optimizers_; }
  /// Returns what clips attention logits; it must be among the observers of the steps. Null if nothing does.
  const std::shared_ptr<QkClip>& qk_clip() const { return qk_clip_; }
  /// Returns the bytes of all optimizers' state on this rank.
  int64_t state_bytes() const;

  // These call the functions of Optimizer for every optimizer, in the order of the plan; second_backward and
  // learn_from_second only for the one that declares the need, if there is one. `apply` returns the sum.
  void set_fresh_since(const std::map<std::string, int64_t>& step_of_parameter);
  std::optional<OtherLabels> second_backward(int64_t step) const;
  void learn_from_second(int64_t step, int64_t num_targets);
  void begin(const Update& update);
  int64_t apply(const Update& update, FlatRange range);

  /// Returns the names of what the optimizers count ("sophiag_clipped"), and the counts of the last update in this
  /// order (Optimizer::counts): int64, one dim, where the parameters are.
  std::vector<std::string> count_names() const;
  Tensor counts() const;

 private:
  OptimizerPlan plan_;
  OptimizerServices services_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::shared_ptr<QkClip> qk_clip_;
  std::set<std::string> learn_from_second_;  // parameters of the model, on whichever rank
  std::set<int64_t> fresh_after_;            // steps after which the state of one of them was zero
};

}  // namespace athanor::inline optim
