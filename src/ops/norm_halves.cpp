#include "ops/norm_halves.h"

#include "kernels/accumulate.h"
#include "kernels/norm.h"
#include "ops/device.h"
#include "ops/norm.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

Tensor wide(const Tensor& x) { return x.reshape({num_rows(x), x.size(-1)}).to(wide_type(x)); }

}  // namespace

void square_sums_into(const Tensor& x, const Tensor& sums) {
  if (device::takes(x)) return portable::square_sums_into(x, sums);
  if (played("square_sums", {x}, {sums})) return;
  const int64_t width = x.size(-1);
  auto* sum = pointer<float>(sums);
  with_element(x, [&](auto* tag) {
    const auto* from = pointer<std::decay_t<decltype(*tag)>>(x);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      kernels::square_sums(from + begin * width, sum + begin, end - begin, width);
    });
  });
}

Tensor norm_scale(const Tensor& x, const Tensor& weight, const Tensor& rstd, double offset) {
  if (device::takes(x)) return portable::norm_scale(x, weight, rstd, offset);
  const Tensor y = at::empty_like(x);
  if (played("rms_norm_scale", {x, weight, rstd}, {y})) return y;
  const int64_t width = x.size(-1);
  const float* r = pointer<float>(rstd);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *from = pointer<T>(x), *w = pointer<T>(weight);
    T* to = pointer<T>(y);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width;
      kernels::rms_norm_scale(from + at, w, r + begin, to + at, end - begin, width, static_cast<float>(offset));
    });
  });
  return y;
}

void norm_dots_into(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dots,
                    double offset) {
  if (device::takes(x)) return portable::norm_dots_into(dy, x, weight, rstd, dots, offset);
  if (played("rms_norm_dots", {dy, x, weight, rstd}, {dots})) return;
  const int64_t width = x.size(-1);
  const float* r = pointer<float>(rstd);
  auto* dot = pointer<float>(dots);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *from = pointer<T>(x), *w = pointer<T>(weight), *d = pointer<T>(dy);
    for_rows(num_rows(x), width, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * width;
      kernels::rms_norm_dots(d + at, from + at, w, r + begin, dot + begin, end - begin, width,
                             static_cast<float>(offset));
    });
  });
}

Tensor norm_gradient(const Tensor& dy, const Tensor& x, const Weight& weight, const Tensor& rstd, const Tensor& means,
                     double offset) {
  if (device::takes(x)) return portable::norm_gradient(dy, x, weight, rstd, means, offset);
  const Tensor dx = at::empty_like(x);
  const int64_t rows = num_rows(x), width = x.size(-1), blocks = (rows + kRowsPerPartial - 1) / kRowsPerPartial;
  const Tensor partials = at::zeros({blocks, width}, means.options());
  if (played("rms_norm_backward", {dy, x, weight.value, rstd, means}, {dx, partials, weight.grad})) return dx;
  float* partial = pointer<float>(partials);
  const float *r = pointer<float>(rstd), *mean = pointer<float>(means);
  with_element(x, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    const T *from = pointer<T>(x), *w = pointer<T>(weight.value), *d = pointer<T>(dy);
    T* to = pointer<T>(dx);
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t row = b * kRowsPerPartial, at = row * width, count = std::min(kRowsPerPartial, rows - row);
        kernels::rms_norm_backward_of_means(d + at, from + at, w, r + row, mean + row, to + at, partial + b * width,
                                            count, width, static_cast<float>(offset));
      }
    });
  });
  if (!weight.grad.defined()) return dx;
  for (int64_t b = 0; b < blocks; ++b) kernels::accumulate(pointer<float>(weight.grad), partial + b * width, width);
  return dx;
}

namespace portable {

void square_sums_into(const Tensor& x, const Tensor& sums) { Tensor(sums).copy_(wide(x).square().sum(1)); }

Tensor norm_scale(const Tensor& x, const Tensor& weight, const Tensor& rstd, double offset) {
  return (wide(x) * rstd.unsqueeze(1) * (weight.to(wide_type(x)) + offset)).to(x.scalar_type()).view(x.sizes());
}

void norm_dots_into(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dots,
                    double offset) {
  Tensor(dots).copy_((wide(dy) * (weight.to(wide_type(x)) + offset) * (wide(x) * rstd.unsqueeze(1))).sum(1));
}

Tensor norm_gradient(const Tensor& dy, const Tensor& x, const Weight& weight, const Tensor& rstd, const Tensor& means,
                     double offset) {
  const Tensor r = rstd.unsqueeze(1), normed = wide(x) * r, g = wide(dy);
  if (weight.grad.defined()) Tensor(weight.grad).add_((g * normed).sum(0));
  const Tensor dx = r * (g * (weight.value.to(wide_type(x)) + offset) - normed * means.unsqueeze(1));
  return dx.to(x.scalar_type()).view(x.sizes());
}

}  // namespace portable
}  // namespace athanor::ops
