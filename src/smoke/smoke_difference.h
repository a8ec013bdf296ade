#pragma once
// Compares two traces of `athanor smoke` (smoke/smoke_trace.h): which tensor differs first, by how much, and what that
// tells. In every text, "here" is the build that compares and "there" the other one. It needs no libtorch.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "smoke/smoke_trace.h"

namespace athanor::inline smoke {

/// Returns a line for each fact that differs: version, commit, libtorch, paths of products, the number of a model's
/// parameters, models that only one trace has. Either of these can be why tensors differ.
std::vector<std::string> differing_facts(const SmokeTrace& here, const SmokeTrace& there);

/// The first tensor, in the order of computation, in which two traces of a model differ.
struct TraceDifference {
  std::optional<TracedTensor> here, there;  ///< nothing: that trace has ended
  size_t num_equal = 0;                     ///< tensors before it
  /// of the tensors of its step: those that differ, and all
  size_t differing_in_step = 0, num_in_step = 0;

  /// True if both have this tensor in the same shape and type, so that its values can be compared.
  bool has_values() const;
};
std::optional<TraceDifference> first_difference(const TracedModel& here, const TracedModel& there);

/// Returns how two tensors' values differ: how many, the largest difference, where it is, and its share of the largest
/// value here. Values are compared by their bits, so that 0 differs from −0.
/// @param here, there  as many values as `tensor` has elements, row-major.
std::string describe_values(const TracedTensor& tensor, const std::vector<double>& here,
                            const std::vector<double>& there);

/// Returns the line about a difference: "dense: first differs at step 3, forward of microbatch 0, model.layers.1.mlp
/// […] float32: VALUES; hashes A here, B there".
/// @param values  what describe_values returned; empty: they were not compared.
std::string describe_difference(const std::string& model, const TraceDifference& difference, const std::string& values);

/// Returns the line that tells where to look: what must compute it differently, since all before is equal.
std::string meaning_of_difference(const std::string& model, const TraceDifference& difference);

}  // namespace athanor::inline smoke
