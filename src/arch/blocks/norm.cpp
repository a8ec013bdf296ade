#include "arch/blocks/norm.h"

namespace athanor::inline arch {

void NormSpec::append_parameters(std::vector<ParameterSpec>& out) const {
  const auto add = [&](std::string of, Role role, Initial initial) {
    out.push_back({.name = std::move(of),
                   .shape = {width},
                   .role = role,
                   .layer = layer,
                   .gradient = gradient,
                   .initial = initial,
                   .width = width_class});
  };
  if (has_weight()) add(weight(), Role::kNorm, offset == 0 ? Initial::kOne : Initial::kZero);
  if (has_bias()) add(bias(), Role::kBias, Initial::kZero);
}

}  // namespace athanor::inline arch
