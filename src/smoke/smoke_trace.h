#pragma once
// The trace of `athanor smoke`: a hash of every tensor that a step computes, as text, so that two builds can be
// compared without either knowing the other's tensors. It needs no libtorch.
//
//   athanor-smoke-trace 1
//   fact commit 7fee44b9f357                                          what the build is and how it multiplies
//   model dense
//   0 initial model.norm.weight 128 float32 HASH                      step, phase, name, shape, type, hash
//   1 forward.0 model.layers.1.mlp 4x64x128 float32 HASH
//   end 59
//
// The lines of a model are in the order of computation. The phases of a step are `input` (its tokens), `forward.M` and
// `backward.M` of microbatch M (the places of parallel/observer.h), `loss`, `gradient` (of each parameter, of the whole
// step), `norm` and `update` (each parameter's master after the update). Step 0 has the phase `initial`. `end` counts
// the tensors, so that a trace that was cut off is noticed.
//
// A trace that was asked for a single tensor has that one alone, with a line "values N" and then its elements as the
// bits of fp64, in hexadecimal digits, which hold each type that a step computes in.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

struct TracedTensor {
  int64_t step = 0;
  std::string phase, name;
  std::string shape;  ///< "4x64x128"; "1" for a number
  std::string type;   ///< "float32", "bfloat16", …
  std::string hash;   ///< hash of the bytes, row-major (base/hash.h)

  bool operator==(const TracedTensor&) const = default;
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
};

/// Returns the text of a trace; parse_trace is the inverse.
std::string text_of(const SmokeTrace& trace);

/// @param name  of the text, for messages.
/// @throws DataError with the line if the text is no trace, or is cut off.
SmokeTrace parse_trace(std::string_view text, const std::string& name);

}  // namespace athanor::inline smoke
