#include "arch/blocks/linear.h"

namespace athanor::inline arch {

// A router and an output layer read the residual stream and leave it.
ParameterSpec LinearSpec::parameter() const {
  const bool leaves = role == Role::kRouter || role == Role::kOutput;
  return {.name = weight(),
          .shape = {rows, columns},
          .role = role,
          .layer = layer,
          .sharded = {.tensor = tensor},
          .of_key_heads = of_key_heads,
          .width = leaves ? WidthClass::kOutput : WidthClass::kHidden};
}

double LinearSpec::flops(double tokens) const {
  return matmul_flops(tokens, static_cast<double>(rows), static_cast<double>(columns));
}

}  // namespace athanor::inline arch
