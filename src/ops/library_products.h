#pragma once
// Matrix products by libtorch's library, with bits that no number of threads changes.
//
// The library divides a product among its threads as their number suggests, and the last bits with it. So a product is
// cut here, by its shape alone, into parts that one thread multiplies each.

#include <vector>

#include "kernels/matmul.h"

namespace athanor::ops::library {

/// All of them, on every thread. Where bf16 is summed into fp32, the product is rounded once before it is added: the
/// library has no fp32 result for bf16 operands.
template <class T>
void multiply(const std::vector<kernels::Product<T>>& products);

}  // namespace athanor::ops::library
