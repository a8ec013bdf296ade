#pragma once
// Maps our logical parameters to the tensors of `transformers` folders: they have the same names, but each expert is
// stored separately.

#include <string>
#include <vector>

#include "arch/parameter.h"
#include "checkpoint/dtype.h"

namespace athanor::inline checkpoint {

inline constexpr const char* kHfConfigName = "config.json";
inline constexpr const char* kHfWeightsName = "model.safetensors";
inline constexpr const char* kHfIndexName = "model.safetensors.index.json";

struct HfTensor {
  std::string name;
  Shape shape;
};

/// Returns the tensors on disk that, one after the other, hold the parameter's elements: one for each expert of an
/// expert parameter ("...experts.7.gate_proj.weight"), otherwise the parameter itself.
std::vector<HfTensor> hf_tensors(const ParameterSpec& parameter);

/// A fused tensor that holds a parameter of E experts with intermediate size F and hidden size D. Some folders fuse an
/// expert layer's gate_proj and up_proj into "...experts.gate_up_proj" [E, 2F, D] and stack "...experts.down_proj"
/// [E, D, F]. `first` is the element at which the parameter's rows of the first expert begin, `stride` the number of
/// elements from one expert to the next. The tensor's name is empty if the parameter is not of experts.
struct HfFused {
  HfTensor tensor;
  int64_t first = 0, stride = 0;
};
HfFused hf_fused_tensor(const ParameterSpec& parameter);

}  // namespace athanor::inline checkpoint
