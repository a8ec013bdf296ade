#include "arch/blocks/linear.h"

namespace athanor::inline arch {

// A router and an output layer read the residual stream and leave it. All tensor ranks compute the whole router.
void LinearSpec::append_parameters(std::vector<ParameterSpec>& all) const {
  const bool leaves = role == Role::kRouter || role == Role::kOutput;
  all.push_back({.name = weight(),
                 .shape = {rows, columns},
                 .role = role,
                 .layer = layer,
                 .sharded = {.tensor = tensor},
                 .of_key_heads = of_key_heads,
                 .gradient = gradient,
                 .deviation = deviation,
                 .width = leaves ? WidthClass::kOutput : WidthClass::kHidden,
                 .form = form});
  if (!form.fused.empty()) all.back().form.fused += ".weight";
  if (!has_bias) return;
  all.push_back({.name = bias(),
                 .shape = {rows},
                 .role = Role::kBias,
                 .layer = layer,
                 .sharded = {.tensor = tensor == 0 ? 0 : -1},
                 .of_key_heads = of_key_heads,
                 .gradient = role == Role::kRouter ? gradient : TensorGradient::kOfTokens,
                 .initial = initial_bias,
                 .width = WidthClass::kInput,
                 .form = form});
  all.back().form.transposed = false;
  if (!form.fused.empty()) all.back().form.fused += ".bias";
}

double LinearSpec::flops(double tokens) const {
  return matmul_flops(tokens, static_cast<double>(rows), static_cast<double>(columns));
}

}  // namespace athanor::inline arch
