#pragma once
// What is to be timed is verified first: against fp64 values with bounds that were derived, never fitted.

#include <string>

#include "ops/testing/running_error.h"

namespace athanor::bench {

using at::Tensor;
using ops::testing::Tracked;

/// @throws Error that names the element, unless each element of `actual` is within its bound.
void require_within(const Tensor& actual, const Tracked& expected, const std::string& what);

/// x W for exact W [K, N] in fp64, in fp32 arithmetic of any order.
Tracked product(const Tracked& x, const Tensor& w);

/// Rounded to `dtype`, once or twice: a fused form may round where an unfused one does not.
Tracked stored_twice(const Tracked& x, at::ScalarType dtype);

/// Spread evenly over [0, size): `count` indices, or all.
Tensor spread_indices(int64_t size, int64_t count);

/// For the test of verification: moves one element of x as a wrong kernel would, if the fault bench.result is armed.
void spoil_if_asked(const Tensor& x);

}  // namespace athanor::bench
