#include "kernels/norm.h"

#include <cmath>

namespace athanor::kernels {
namespace {

template <class T>
ATHANOR_INLINE void add(const T* x, const T* branch, T* sum, int64_t width) {
  for (int64_t i = 0; i < width; ++i) store(sum[i], load(x[i]) + load(branch[i]));
}

// A norm's gradient is written to dx, or rounded and then added to the gradient that its input has from elsewhere.
template <bool kAdd, class T>
ATHANOR_INLINE void put(T& dx, const T* dsum, int64_t i, float value) {
  if constexpr (kAdd) {
    T rounded;
    store(rounded, value);
    store(dx, load(dsum[i]) + load(rounded));
  } else {
    store(dx, value);
  }
}

template <class T>
ATHANOR_INLINE float squares_of(const T* x, int64_t width) {
  return sum_over(width, [x](int64_t i) { return load(x[i]) * load(x[i]); });
}

// The scale of RMSNorm, weight + offset.
template <class T>
struct Scale {
  const T* weight;
  float offset;
  ATHANOR_INLINE float operator[](int64_t i) const { return load(weight[i]) + offset; }
};

template <class T>
ATHANOR_INLINE void scale(const T* x, Scale<T> w, float r, T* y, int64_t width) {
  for (int64_t i = 0; i < width; ++i) store(y[i], load(x[i]) * r * w[i]);
}

template <class T>
ATHANOR_INLINE void rms_forward(const T* x, Scale<T> w, T* y, float* rstd, int64_t rows, int64_t width, float eps) {
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    const float r = 1.0f / std::sqrt(squares_of(x, width) / static_cast<float>(width) + eps);
    rstd[row] = r;
    scale(x, w, r, y, width);
  }
}

// With x̂ = x·r: dx = r · (g − x̂ · mean(g · x̂)), where g = dy · w.
template <class T>
ATHANOR_INLINE float dot_of(const T* dy, const T* x, Scale<T> w, float r, int64_t width) {
  return sum_over(width, [=](int64_t i) { return load(dy[i]) * w[i] * (load(x[i]) * r); });
}

template <bool kAdd, class T>
ATHANOR_INLINE void rms_gradient(const T* dsum, const T* dy, const T* x, Scale<T> w, float r, float mean, T* dx,
                                 float* dw, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    const float normed = load(x[i]) * r, g = load(dy[i]);
    dw[i] += g * normed;
    put<kAdd>(dx[i], dsum, i, r * (g * w[i] - normed * mean));
  }
}

template <bool kAdd, class T>
ATHANOR_INLINE void rms_backward(const T* dsum, const T* dy, const T* x, Scale<T> w, const float* rstd, T* dx,
                                 float* dw, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width, dsum += kAdd ? width : 0) {
    const float mean = dot_of(dy, x, w, rstd[row], width) / static_cast<float>(width);
    rms_gradient<kAdd>(dsum, dy, x, w, rstd[row], mean, dx, dw, width);
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
template <bool kAdd, class T>
ATHANOR_INLINE void layer_backward(const T* dsum, const T* dy, const T* x, const float* mean, const float* rstd, T* dx,
                                   int64_t rows, int64_t width) {
  const auto n = static_cast<float>(width);
  for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width, dsum += kAdd ? width : 0) {
    const float m = mean[row], r = rstd[row];
    const float mean_dy = sum_over(width, [dy](int64_t i) { return load(dy[i]); }) / n;
    const float mean_dot = sum_over(width, [=](int64_t i) { return load(dy[i]) * ((load(x[i]) - m) * r); }) / n;
    for (int64_t i = 0; i < width; ++i) {
      put<kAdd>(dx[i], dsum, i, r * (load(dy[i]) - mean_dy - (load(x[i]) - m) * r * mean_dot));
    }
  }
}

}  // namespace

#define ATHANOR_NORM(T)                                                                                                \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void rms_norm_forward<T>(const T* x, const T* w, T* y, float* rstd, int64_t rows, int64_t width,    \
                                            float eps, float offset) {                                                 \
    rms_forward(x, Scale<T>{w, offset}, y, rstd, rows, width, eps);                                                    \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void rms_norm_backward<T>(const T* dy, const T* x, const T* w, const float* rstd, T* dx, float* dw, \
                                             int64_t rows, int64_t width, float offset) {                              \
    rms_backward<false, T>(nullptr, dy, x, Scale<T>{w, offset}, rstd, dx, dw, rows, width);                            \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void layer_norm_forward<T>(const T* x, T* y, float* mean, float* rstd, int64_t rows, int64_t width, \
                                              float eps) {                                                             \
    layer_forward(x, y, mean, rstd, rows, width, eps);                                                                 \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void layer_norm_backward<T>(const T* dy, const T* x, const float* mean, const float* rstd, T* dx,   \
                                               int64_t rows, int64_t width) {                                          \
    layer_backward<false, T>(nullptr, dy, x, mean, rstd, dx, rows, width);                                             \
  }

#define ATHANOR_ADD_NORM(T)                                                                                            \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void add_rms_norm_forward<T>(const T* x, const T* branch, const T* w, T* sum, T* y, float* rstd,    \
                                                int64_t rows, int64_t width, float eps, float offset) {                \
    for (int64_t row = 0; row < rows; ++row) {                                                                         \
      const int64_t at = row * width;                                                                                  \
      add(x + at, branch + at, sum + at, width);                                                                       \
      rms_forward(sum + at, Scale<T>{w, offset}, y + at, rstd + row, 1, width, eps);                                   \
    }                                                                                                                  \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void add_rms_norm_backward<T>(const T* dsum, const T* dy, const T* x, const T* w,                   \
                                                 const float* rstd, T* dx, float* dw, int64_t rows, int64_t width,     \
                                                 float offset) {                                                       \
    rms_backward<true>(dsum, dy, x, Scale<T>{w, offset}, rstd, dx, dw, rows, width);                                   \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void add_layer_norm_forward<T>(const T* x, const T* branch, T* sum, T* y, float* mean, float* rstd, \
                                                  int64_t rows, int64_t width, float eps) {                            \
    for (int64_t row = 0; row < rows; ++row) {                                                                         \
      const int64_t at = row * width;                                                                                  \
      add(x + at, branch + at, sum + at, width);                                                                       \
      layer_forward(sum + at, y + at, mean + row, rstd + row, 1, width, eps);                                          \
    }                                                                                                                  \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void add_layer_norm_backward<T>(const T* dsum, const T* dy, const T* x, const float* mean,          \
                                                   const float* rstd, T* dx, int64_t rows, int64_t width) {            \
    layer_backward<true>(dsum, dy, x, mean, rstd, dx, rows, width);                                                    \
  }

#define ATHANOR_NORM_HALVES(T)                                                                                  \
  template <>                                                                                                   \
  ATHANOR_EACH_ISA void square_sums<T>(const T* x, float* sums, int64_t rows, int64_t width) {                  \
    for (int64_t row = 0; row < rows; ++row) sums[row] = squares_of(x + row * width, width);                    \
  }                                                                                                             \
  template <>                                                                                                   \
  ATHANOR_EACH_ISA void rms_norm_scale<T>(const T* x, const T* w, const float* rstd, T* y, int64_t rows,        \
                                          int64_t width, float offset) {                                        \
    for (int64_t row = 0; row < rows; ++row)                                                                    \
      scale(x + row * width, Scale<T>{w, offset}, rstd[row], y + row * width, width);                           \
  }                                                                                                             \
  template <>                                                                                                   \
  ATHANOR_EACH_ISA void rms_norm_dots<T>(const T* dy, const T* x, const T* w, const float* rstd, float* dots,   \
                                         int64_t rows, int64_t width, float offset) {                           \
    for (int64_t row = 0; row < rows; ++row)                                                                    \
      dots[row] = dot_of(dy + row * width, x + row * width, Scale<T>{w, offset}, rstd[row], width);             \
  }                                                                                                             \
  template <>                                                                                                   \
  ATHANOR_EACH_ISA void rms_norm_backward_of_means<T>(const T* dy, const T* x, const T* w, const float* rstd,   \
                                                      const float* means, T* dx, float* dw, int64_t rows,       \
                                                      int64_t width, float offset) {                            \
    for (int64_t row = 0; row < rows; ++row) {                                                                  \
      const int64_t at = row * width;                                                                           \
      rms_gradient<false, T>(nullptr, dy + at, x + at, Scale<T>{w, offset}, rstd[row], means[row], dx + at, dw, \
                             width);                                                                            \
    }                                                                                                           \
  }

ATHANOR_NORM(float)
ATHANOR_NORM(Bf16)
ATHANOR_NORM_HALVES(float)
ATHANOR_NORM_HALVES(Bf16)
ATHANOR_ADD_NORM(float)
ATHANOR_ADD_NORM(Bf16)

}  // namespace athanor::kernels
