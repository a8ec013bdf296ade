#include "checkpoint/hf_layout.h"

#include <string_view>

namespace athanor::inline checkpoint {
namespace {

constexpr std::string_view kExperts = ".experts.";

}  // namespace

std::vector<HfTensor> hf_tensors(const ParameterSpec& parameter) {
  if (!parameter.is_expert()) return {{parameter.name, parameter.shape}};
  const auto cut = parameter.name.find(kExperts) + kExperts.size();
  const Shape shape(parameter.shape.begin() + 1, parameter.shape.end());
  std::vector<HfTensor> tensors;
  for (int64_t expert = 0; expert < parameter.shape[0]; ++expert) {
    tensors.push_back(
        {parameter.name.substr(0, cut) + std::to_string(expert) + "." + parameter.name.substr(cut), shape});
  }
  return tensors;
}

HfFused hf_fused_tensor(const ParameterSpec& parameter) {
  if (!parameter.is_expert()) return {};
  const auto experts = parameter.name.substr(0, parameter.name.find(kExperts) + kExperts.size());
  const int64_t one_expert = parameter.shape[1] * parameter.shape[2];
  if (parameter.role == Role::kExpertDown) return {{experts + "down_proj", parameter.shape}, 0, one_expert};
  Shape fused = parameter.shape;
  fused[1] *= 2;
  const int64_t first = parameter.role == Role::kExpertUp ? one_expert : 0;  // the rows of gate come first
  return {{experts + "gate_up_proj", fused}, first, 2 * one_expert};
}

}  // namespace athanor::inline checkpoint
