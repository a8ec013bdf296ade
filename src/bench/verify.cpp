#include "bench/verify.h"

#include "base/error.h"
#include "base/fault.h"

namespace athanor::bench {

void require_within(const Tensor& actual, const Tracked& expected, const std::string& what) {
  ATHANOR_ASSERT(actual.sizes() == expected.value.sizes());
  const Tensor off = (actual.detach().to(at::kDouble) - expected.value).abs();
  const Tensor outside = (off <= expected.error).logical_not();
  const auto count = outside.sum().item<int64_t>();
  if (count == 0) return;
  const auto at = outside.reshape({-1}).to(at::kByte).argmax().item<int64_t>();
  const auto element = [&](const Tensor& x) { return x.reshape({-1})[at].item<double>(); };
  fail<Error>("wrong, so not timed: {}: {} of {} elements outside their bounds; element {} is {}, expected {} ± {}",
              what, count, actual.numel(), at, element(actual), element(expected.value), element(expected.error));
}

Tracked product(const Tracked& x, const Tensor& w) {
  const Tensor size = w.abs();
  const Tensor bound = ops::error_bound(at::matmul(x.largest(), size), at::kFloat, w.size(0));
  return {at::matmul(x.value, w), at::matmul(x.error, size) + bound};
}

Tracked stored_twice(const Tracked& x, at::ScalarType dtype) {
  return ops::test::stored(ops::test::stored(x, dtype), dtype);
}

Tensor spread_indices(int64_t size, int64_t count) {
  if (count >= size) return at::arange(size, at::kLong);
  return at::floor_divide(at::arange(count, at::kLong) * size, count);
}

void spoil_if_asked(const Tensor& x) {
  if (fault_errno("bench.result") == 0) return;
  const at::NoGradGuard no_grad;
  x.reshape({-1})[0] += x.abs().max();
}

}  // namespace athanor::bench
