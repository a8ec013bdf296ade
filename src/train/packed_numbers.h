#pragma once
// The numbers of a step on a device, as one tensor: so that they come to the host in one copy.

#include <span>
#include <vector>

#include "parallel/stage.h"

namespace athanor::inline train {

/// Returns the tensors of LossParts that are on the device: sums and counts of type fp64 and int64, those that are
/// defined, in a fixed order.
std::vector<Tensor*> tensors_of(LossParts& parts);

/// Returns the values of fp64 and int64 tensors one after the other, int64 [n], fp64 as its bits.
Tensor pack_numbers(std::span<Tensor* const> tensors);

/// Sets each tensor to what pack_numbers took from one of its shape and type, as a view of `packed`.
void unpack_numbers(const Tensor& packed, std::span<Tensor* const> tensors);

}  // namespace athanor::inline train
