#pragma once
// How our logical parameters lie in `transformers` folders: the same names, but each expert by itself.

#include <string>
#include <vector>

#include "arch/inventory.h"
#include "checkpoint/dtype.h"

namespace athanor {

inline constexpr const char* kHfConfigName = "config.json";
inline constexpr const char* kHfWeightsName = "model.safetensors";
inline constexpr const char* kHfIndexName = "model.safetensors.index.json";

struct HfTensor {
  std::string name;
  Shape shape;
};

/// The tensors on disk that, one after the other, hold the parameter's elements: E of them for experts, else itself.
std::vector<HfTensor> hf_tensors(const ParameterSpec& parameter);

/// Some folders fuse an expert layer's gate_proj and up_proj into "...experts.gate_up_proj" [E, 2F, D] and stack
/// "...experts.down_proj" [E, D, F]. The fused tensor's name for `parameter`, and where its first expert's rows begin
/// and how many elements lie from one expert to the next; empty for what is no expert.
struct HfFused {
  HfTensor tensor;
  int64_t first = 0, stride = 0;
};
HfFused hf_fused_tensor(const ParameterSpec& parameter);

}  // namespace athanor
