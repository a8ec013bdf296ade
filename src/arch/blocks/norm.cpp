#include "arch/blocks/norm.h"

namespace athanor::inline arch {

void NormSpec::append_parameters(std::vector<ParameterSpec>& out) const {
  if (!has_weight()) return;
  out.push_back({.name = weight(),
                 .shape = {width},
                 .role = Role::kNorm,
                 .layer = layer,
                 .gradient = TensorGradient::kOfTokens,
                 .initial = Initial::kOne,
                 .width = width_class});
}

}  // namespace athanor::inline arch
