#pragma once
// The number types of configurations (base/number_types.h) as types of tensors.

#include <ATen/ATen.h>

#include "base/number_types.h"

namespace athanor::ops {

inline at::ScalarType scalar_type(NumberType type) { return type == NumberType::kFloat32 ? at::kFloat : at::kBFloat16; }

/// Returns the type of a tensor in which training computes.
inline NumberType number_type_of(at::ScalarType type) {
  return type == at::kFloat ? NumberType::kFloat32 : NumberType::kBFloat16;
}

/// Returns "float32" or "bfloat16".
inline const char* type_name(at::ScalarType type) { return name_of(number_type_of(type)); }

}  // namespace athanor::ops
