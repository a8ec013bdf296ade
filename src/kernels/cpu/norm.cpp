#include "kernels/norm.h"

#include <cmath>

namespace athanor::kernels {
namespace {

template <class T>
ATHANOR_INLINE void rms_forward(const T* x, const T* w, T* y, float* rstd, int64_t rows, int64_t width, float eps) {
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    const float squares = sum_over(width, [x](int64_t i) { return load(x[i]) * load(x[i]); });
    const float r = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
    rstd[row] = r;
    for (int64_t i = 0; i < width; ++i) store(y[i], load(x[i]) * r * load(w[i]));
  }
}

// With x̂ = x·r: dx = r · (g − x̂ · mean(g · x̂)), where g = dy · w.
template <class T>
ATHANOR_INLINE void rms_backward(const T* dy, const T* x, const T* w, const float* rstd, T* dx, float* dw, int64_t rows,
                                 int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    const float r = rstd[row];
    const float dot = sum_over(width, [=](int64_t i) { return load(dy[i]) * load(w[i]) * (load(x[i]) * r); });
    const float mean = dot / static_cast<float>(width);
    for (int64_t i = 0; i < width; ++i) {
      const float normed = load(x[i]) * r, g = load(dy[i]);
      dw[i] += g * normed;
      store(dx[i], r * (g * load(w[i]) - normed * mean));
    }
  }
}

template <class T>
ATHANOR_INLINE void layer_forward(const T* x, T* y, float* mean, float* rstd, int64_t rows, int64_t width, float eps) {
  const auto n = static_cast<float>(width);
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    const float m = sum_over(width, [x](int64_t i) { return load(x[i]); }) / n;
    const float variance = sum_over(width, [x, m](int64_t i) { return (load(x[i]) - m) * (load(x[i]) - m); }) / n;
    const float r = 1.0f / std::sqrt(variance + eps);
    mean[row] = m;
    rstd[row] = r;
    for (int64_t i = 0; i < width; ++i) store(y[i], (load(x[i]) - m) * r);
  }
}

// With x̂ = (x − m)·r: dx = r · (dy − mean(dy) − x̂ · mean(dy · x̂)).
template <class T>
ATHANOR_INLINE void layer_backward(const T* dy, const T* x, const float* mean, const float* rstd, T* dx, int64_t rows,
                                   int64_t width) {
  const auto n = static_cast<float>(width);
  for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    const float m = mean[row], r = rstd[row];
    const float mean_dy = sum_over(width, [dy](int64_t i) { return load(dy[i]); }) / n;
    const float mean_dot = sum_over(width, [=](int64_t i) { return load(dy[i]) * ((load(x[i]) - m) * r); }) / n;
    for (int64_t i = 0; i < width; ++i) {
      store(dx[i], r * (load(dy[i]) - mean_dy - (load(x[i]) - m) * r * mean_dot));
    }
  }
}

}  // namespace

#define ATHANOR_NORM(T)                                                                                                \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void rms_norm_forward<T>(const T* x, const T* w, T* y, float* rstd, int64_t rows, int64_t width,    \
                                            float eps) {                                                               \
    rms_forward(x, w, y, rstd, rows, width, eps);                                                                      \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void rms_norm_backward<T>(const T* dy, const T* x, const T* w, const float* rstd, T* dx, float* dw, \
                                             int64_t rows, int64_t width) {                                            \
    rms_backward(dy, x, w, rstd, dx, dw, rows, width);                                                                 \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void layer_norm_forward<T>(const T* x, T* y, float* mean, float* rstd, int64_t rows, int64_t width, \
                                              float eps) {                                                             \
    layer_forward(x, y, mean, rstd, rows, width, eps);                                                                 \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void layer_norm_backward<T>(const T* dy, const T* x, const float* mean, const float* rstd, T* dx,   \
                                               int64_t rows, int64_t width) {                                          \
    layer_backward(dy, x, mean, rstd, dx, rows, width);                                                                \
  }

ATHANOR_NORM(float)
ATHANOR_NORM(Bf16)

}  // namespace athanor::kernels
