#pragma once
// What optimizers keep and need, as data that follows from the configuration. Checkpoints, memory formulas and the dry
// run read this; they know nothing else of an optimizer.

#include <cstdint>
#include <string>
#include <vector>

#include "config/optimizer_table.h"
#include "layout/buckets.h"
#include "layout/parameter_groups.h"

namespace athanor::inline layout {

/// The type of a kind of state in memory. Checkpoints store every type as fp32, which holds each of its values.
enum class StateType { kFloat32, kBFloat16 };
int64_t bytes_of(StateType type);

/// One kind of state, such as "exp_avg".
struct StateKind {
  enum class Extent {
    kElement,  ///< one value for each element of a parameter; held by the ranks that own the element
    kMatrix,  ///< one value for each matrix of a parameter (count_matrices); held by every rank that holds a part of it
    kScalar,  ///< one value for the run, on every rank
  };

  std::string name;
  StateType type = StateType::kFloat32;
  Extent extent = Extent::kElement;

  /// Returns the name of its tensor in a checkpoint: "exp_avg/model.norm.weight". A scalar belongs to no parameter.
  std::string tensor_name(const std::string& parameter) const;
};

/// Returns the number of matrices in a slice of a parameter: the first dim of stacked experts, [E, F, D] or their
/// biases [E, F], else 1, also for a norm's scale.
int64_t count_matrices(Replication replication, const std::vector<int64_t>& shape);
/// Returns the number of matrices in the whole parameter.
int64_t count_matrices(const ParameterSpec& spec);

struct OptimizerDeclaration {
  std::string name;
  std::vector<StateKind> state;
  OptimizerNeeds needs = {};

  /// Return the bytes of all kinds of state of an extent: for each element owned, for each matrix held, for the run.
  int64_t bytes_per_element() const { return bytes_per(StateKind::Extent::kElement); }
  int64_t bytes_per_matrix() const { return bytes_per(StateKind::Extent::kMatrix); }
  int64_t scalar_bytes() const { return bytes_per(StateKind::Extent::kScalar); }
  /// Returns the number of kinds of this extent.
  int64_t count_kinds(StateKind::Extent extent) const;

 private:
  int64_t bytes_per(StateKind::Extent extent) const;
};

/// The optimizers of a run, and the parameters that each of them updates.
struct OptimizerPlan {
  std::vector<ParameterGroup> groups;
  std::vector<OptimizerDeclaration> optimizers;

  /// @throws Error if none has this name.
  const OptimizerDeclaration& optimizer(const std::string& name) const;
  const OptimizerDeclaration& optimizer_of(const std::string& parameter, Role role) const {
    return optimizer(group_of(groups, parameter, role).optimizer);
  }
  /// Returns the number of elements of the model that an optimizer updates.
  int64_t count_elements(const ModelConfig& model, const std::string& optimizer) const;
  /// Returns the tensors that a checkpoint of the model has for the optimizers: for each parameter those of its
  /// optimizer, then the scalars.
  std::vector<std::string> tensor_names(const ModelConfig& model) const;
};

/// Returns the declaration of an optimizer of config/optimizer_table.h.
OptimizerDeclaration declare_optimizer(const std::string& name);
OptimizerPlan plan_optimizers(const OptimizerConfig& config);

/// The flat range of neighbouring parameters of one parameter group, with the padding after them.
struct GroupRange {
  FlatRange range;
  const ParameterGroup* group;  ///< points into the plan, which must outlive it
};
/// Returns the ranges in order; together they cover flat memory, which has `flat_size` elements.
/// @param table  as laid out by lay_out_buckets.
std::vector<GroupRange> find_group_ranges(const std::vector<BucketEntry>& table, int64_t flat_size,
                                          const OptimizerPlan& plan);

/// Returns the parts of `owned` whose elements this optimizer updates. Their state_begin counts in the state of this
/// optimizer only. With one optimizer these are the owned ranges themselves.
std::vector<OwnedRange> find_state_ranges(const std::vector<OwnedRange>& owned, const std::vector<GroupRange>& groups,
                                          const std::string& optimizer);

/// Returns the bytes of all optimizers' state on a rank.
int64_t count_optimizer_bytes(const std::vector<BucketEntry>& table, int64_t flat_size,
                              const std::vector<OwnedRange>& owned, const OptimizerPlan& plan);

}  // namespace athanor::inline layout
