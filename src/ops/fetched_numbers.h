#pragma once
// Numbers that a device has computed, on their way to the host in one copy.

#include <span>

#include "ops/tensor.h"

namespace athanor::ops {

/// Brings tensors of type fp64 and int64 to the host: each becomes one there, of its shape. Those of a device travel in
/// one copy, for which the host waits once; those of the host stay as they are.
void fetch_together(std::span<Tensor* const> tensors);

/// Returns the values of fp64 and int64 tensors one after the other, int64 [n], fp64 as its bits.
Tensor pack_numbers(std::span<Tensor* const> tensors);

/// Sets each tensor to what pack_numbers took from one of its shape and type, as a view of `packed`.
void unpack_numbers(const Tensor& packed, std::span<Tensor* const> tensors);

}  // namespace athanor::ops
