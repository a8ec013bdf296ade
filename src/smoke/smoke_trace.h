#pragma once
// The trace of `athanor smoke`: a hash of every tensor that a step computes, as JSON, so that two builds can be
// compared without either knowing the other's tensors. It needs no libtorch.
//
//   {"format": "athanor-smoke-trace 2",
//   "facts": [["commit","7fee44b9f357"]],                             what the build is and how it multiplies
//   "models": [
//   {"name": "dense", "tensors": [
//   [0,"initial","model.norm.weight","128","float32",HASH],           step, phase, name, shape, type, hash
//   [1,"forward.0","model.layers.1.mlp","4x64x128","float32",HASH]]}],
//   "values": []}
//
// The tensors of a model are in the order of computation, each on its own line. A step begins with the phases `input`
// (its tokens), and `forward.M` and `backward.M` of microbatch M (the places of parallel/observer.h). The others are
// `loss`, `gradient` (of each parameter, of the whole step), `norm` and `update` (each parameter's master after the
// update). Step 0 has the phase `initial`.
//
// A trace that was asked for a single tensor has that one alone, and its elements as `values`: the bits of fp64, which
// holds each type that a step computes in, as whole numbers.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "verify/traced_tensor.h"

namespace athanor::inline smoke {

/// Names one tensor of a trace: "dense:3:forward.0:model.layers.1.mlp".
struct TracedPlace {
  std::string model;
  int64_t step = 0;
  std::string phase, name;

  bool operator==(const TracedPlace&) const = default;
  std::string text() const;
  /// @throws ConfigError naming --trace-tensor if the text is not in that form.
  static TracedPlace parse(const std::string& text);
};

struct TracedModel {
  std::string name;
  std::vector<TracedTensor> tensors;
};

struct SmokeTrace {
  /// What can make two builds differ before any tensor does: name ("commit") and value ("7fee44b9f357").
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<TracedModel> models;
  std::vector<double> values;  ///< elements of the only tensor, if a single one was asked for; otherwise empty

  size_t num_tensors() const;
  /// Returns the model of this name; null if there is none.
  const TracedModel* find_model(const std::string& name) const;
};

/// Returns the text of a trace; parse_trace is the inverse.
std::string text_of(const SmokeTrace& trace);

/// Reads the text of a trace, also one that an older build wrote (smoke/lines_trace.h).
/// @param name  of the text, for messages.
/// @throws DataError if the text is no trace, or is cut off.
SmokeTrace parse_trace(std::string_view text, const std::string& name);

}  // namespace athanor::inline smoke
