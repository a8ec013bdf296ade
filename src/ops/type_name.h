#pragma once
// The names that configurations and tables use for the types that training computes in.

#include <ATen/ATen.h>

namespace athanor::ops {

/// Returns "float32", or "bfloat16" for any other type.
inline const char* type_name(at::ScalarType type) { return type == at::kFloat ? "float32" : "bfloat16"; }

}  // namespace athanor::ops
