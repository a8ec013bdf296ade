#pragma once
// Verifies what is to be timed: against fp64 values, with bounds that were derived, never fitted.

#include <string>

#include "ops/testing/running_error.h"

namespace athanor::bench {

using at::Tensor;
using ops::test::Tracked;

/// Compares `actual` with expected.value, whose bounds are expected.error.
/// @param what  the name in the message.
/// @throws Error that names an element beyond its bound, if there is one.
void require_within(const Tensor& actual, const Tracked& expected, const std::string& what);

/// Returns x W for exact W [K, N] in fp64, with the error bound of fp32 arithmetic of any order.
Tracked product(const Tracked& x, const Tensor& w);

/// Returns x with the error of rounding it to `dtype` twice, which also covers a form that rounds once.
Tracked stored_twice(const Tracked& x, at::ScalarType dtype);

/// Returns `count` indices spread evenly over [0, size), or all of them.
Tensor spread_indices(int64_t size, int64_t count);

/// Changes one element of x as a wrong kernel would, if the fault point bench.result is active, to test verification.
void spoil_if_asked(const Tensor& x);

}  // namespace athanor::bench
