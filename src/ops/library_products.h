#pragma once
// Matrix products by the matrix library of libtorch (MKL or oneDNN), with bits that do not depend on the number of
// threads.
//
// The library divides a product among threads according to their number, which changes the last bits. So a product is
// cut here, by its shape alone, into parts that are each multiplied by one thread.

#include <vector>

#include "kernels/matmul.h"

namespace athanor::ops::library {

/// Computes all products, on every thread. If bf16 is summed into fp32, the product is rounded once before it is added:
/// the library has no fp32 result for bf16 operands.
template <class T>
void multiply(const std::vector<kernels::Product<T>>& products);

}  // namespace athanor::ops::library
