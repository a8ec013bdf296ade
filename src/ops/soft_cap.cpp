#include "ops/soft_cap.h"

#include "kernels/soft_cap.h"
#include "ops/device.h"
#include "ops/library_functions.h"
#include "ops/played.h"

namespace athanor::ops {

Tensor soft_cap(const Tensor& x, double cap) {
  if (cap == 0) return x;
  if (device::takes(x)) return device::soft_cap(x, cap);
  const Tensor from = x.contiguous(), y = at::empty_like(from);
  if (played("soft_cap", {from}, {y})) return y;
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* source = pointer<T>(from);
    T* to = pointer<T>(y);
    for_rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
      kernels::soft_cap_forward(source + begin, to + begin, end - begin, static_cast<float>(cap));
    });
  });
  return y;
}

void soft_cap_gradient_(const Tensor& dy, const Tensor& x, double cap) {
  if (cap == 0) return;
  if (device::takes(x)) return device::soft_cap_gradient_(dy, x, cap);
  if (played("soft_cap_gradient", {dy, x}, {dy})) return;
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T* from = pointer<T>(x);
    T* d = pointer<T>(dy);
    for_rows(x.numel(), 1, [&](int64_t begin, int64_t end) {
      kernels::soft_cap_backward(d + begin, from + begin, d + begin, end - begin, static_cast<float>(cap));
    });
  });
}

namespace portable {

Tensor soft_cap(const Tensor& x, double cap) {
  start_library_functions();
  return ((x.to(wide_type(x)) / cap).tanh() * cap).to(x.scalar_type());
}

void soft_cap_gradient_(const Tensor& dy, const Tensor& x, double cap) {
  start_library_functions();
  Tensor gradient = dy;
  gradient.copy_(dy.to(wide_type(x)) * (1 - (x.to(wide_type(x)) / cap).tanh().square()));
}

}  // namespace portable
}  // namespace athanor::ops
