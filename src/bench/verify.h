#pragma once
// Verifies what is to be timed: against fp64 values, with bounds that were derived, never fitted.

#include <string>

#include "ops/testing/running_error.h"

namespace athanor::bench {

using at::Tensor;
using ops::test::Tracked;

/// @throws Error that names the element, unless each element of `actual` is within its bound.
void require_within(const Tensor& actual, const Tracked& expected, const std::string& what);

/// Returns x W for exact W [K, N] in fp64, with the error bound of fp32 arithmetic of any order.
Tracked product(const Tracked& x, const Tensor& w);

/// Returns x rounded to `dtype`, once or twice: a fused form may round once and an unfused one twice.
Tracked stored_twice(const Tracked& x, at::ScalarType dtype);

/// Returns `count` indices spread evenly over [0, size), or all of them.
Tensor spread_indices(int64_t size, int64_t count);

/// For the test of verification: changes one element of x as a wrong kernel would, if the fault bench.result is armed.
void spoil_if_asked(const Tensor& x);

}  // namespace athanor::bench
