#include "arch/blocks/linear.h"

namespace athanor::inline arch {
namespace {

FileForm form_of(const FileForm& form, const char* suffix) {
  FileForm of_tensor = form;
  if (!form.fused.empty()) of_tensor.fused += suffix;
  return of_tensor;
}

// A router and an output layer read the residual stream and leave it.
WidthClass width_class_of(Role role) {
  return role == Role::kRouter || role == Role::kOutput ? WidthClass::kOutput : WidthClass::kHidden;
}

}  // namespace

void LinearSpec::append_parameters(std::vector<ParameterSpec>& out) const {
  out.push_back({.name = weight(),
                 .shape = {rows, columns},
                 .role = role,
                 .layer = layer,
                 .sharded = {.tensor = tensor},
                 .of_key_heads = of_key_heads,
                 .width = width_class_of(role),
                 .form = form_of(form, ".weight")});
  if (!has_bias) return;
  ParameterSpec added{.name = bias(),
                      .shape = {rows},
                      .role = Role::kBias,
                      .layer = layer,
                      .sharded = {.tensor = tensor == 0 ? 0 : -1},
                      .of_key_heads = of_key_heads,
                      .gradient = TensorGradient::kOfTokens,
                      .initial = Initial::kZero,
                      .width = WidthClass::kInput,
                      .form = form_of(form, ".bias")};
  added.form.transposed = false;
  out.push_back(std::move(added));
}

}  // namespace athanor::inline arch
