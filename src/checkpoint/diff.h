#pragma once
// Compares two full checkpoints bit by bit, whatever layouts wrote them.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/reader.h"

namespace athanor::inline checkpoint {

struct TensorDifference {
  enum class Kind { kOnlyInA, kOnlyInB, kShape, kElements };
  std::string name;
  Kind kind = Kind::kElements;
  Shape shape_a, shape_b;  ///< empty on a side that has no such tensor

  // Of the elements, if both have the tensor in one shape; an element differs if its bits do:
  int64_t num_elements = 0, num_differing = 0;
  int64_t num_signs_of_zero = 0;  ///< 0.0 and -0.0
  int64_t num_nan_bits = 0;       ///< NaN in both, with different bits
  int64_t num_nan_on_one_side = 0;
  /// The largest of |a − b| and of |a − b| / max(|a|, |b|), over the elements without a NaN; 0 if there are none.
  /// Infinity if a or b is infinite, also the relative one.
  double largest_absolute = 0, largest_relative = 0;
  int64_t first = -1;  ///< row-major position of the first element that differs
  float first_a = 0, first_b = 0;

  Shape first_index() const;
};

/// A value that differs in the manifests' `model` or `state`.
struct ValueDifference {
  std::string path;  ///< "state.step", "state.data.sources.0123.next", "state.config: optimizer.lr"
  std::string a, b;  ///< as JSON or TOML, cut to a line; "absent"
};

struct CheckpointDifference {
  int64_t num_tensors = 0;  ///< compared: those of A or B that the pattern names
  std::vector<TensorDifference> tensors;
  std::vector<ValueDifference> values;
  bool is_empty() const { return tensors.empty() && values.empty(); }
};

struct DiffOptions {
  std::string tensors = "*";  ///< the tensors to compare, KIND/NAME with * and ? as in matches_wildcard
  bool values = true;         ///< also compare `model` and `state`
  int num_threads = 1;        ///< each takes 4 MiB; the result does not depend on their number
};

/// Compares the tensors in windows of a bounded size, so that memory does not grow with the checkpoints. Hashes are not
/// compared (verification.h does that).
/// @throws CheckpointError if no tensor has a name that the pattern matches, and as CheckpointReader::load; IoError.
CheckpointDifference diff_checkpoints(const CheckpointReader& a, const CheckpointReader& b, const DiffOptions& options);

}  // namespace athanor::inline checkpoint
