#include "arch/blocks/norm.h"

namespace athanor::inline arch {

std::vector<ParameterSpec> NormSpec::parameters() const {
  std::vector<ParameterSpec> out;
  const auto add = [&](const std::string& of, Role role, Initial initial) {
    out.push_back({.name = of,
                   .shape = {width},
                   .role = role,
                   .layer = layer,
                   .gradient = TensorGradient::kOfTokens,
                   .initial = initial,
                   .width = width_class});
  };
  if (has_weight()) add(weight(), Role::kNorm, Initial::kOne);
  if (has_bias()) add(bias(), Role::kBias, Initial::kZero);
  return out;
}

}  // namespace athanor::inline arch
