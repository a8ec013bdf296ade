#include "kernels/softmax_tile.h"

#include <cmath>

#include "kernels/gemm_tile.h"
#include "kernels/soft_cap.h"

namespace athanor::kernels {
namespace {

constexpr int64_t kWidth = kTileColumns;

ATHANOR_INLINE void hide(float* scores, int64_t num_rows, int64_t tiles, SeenColumns seen) {
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t begin = seen.begin + i * seen.step, end = seen.end + i * seen.step;
    for (int64_t t = begin > 0 ? 0 : end / kWidth; t < tiles; ++t) {
      float* row = scores + t * kTileElements + i * kWidth;
      for (int64_t j = 0; j < kWidth; ++j) {
        const int64_t column = t * kWidth + j;
        row[j] = column >= begin && column < end ? row[j] : -HUGE_VALF;
      }
    }
  }
}

ATHANOR_INLINE bool sees_all(SeenColumns seen, int64_t num_rows, int64_t columns) {
  return seen.end >= columns && seen.begin + (num_rows - 1) * seen.step <= 0;
}

// Returns the larger of two floats without regard to NaN, which the exponential handles.
ATHANOR_INLINE float larger(float a, float b) { return a > b ? a : b; }

ATHANOR_INLINE float largest_of_row(const float* row, int64_t tiles) {
  float lanes[kWidth];
  for (int64_t j = 0; j < kWidth; ++j) lanes[j] = row[j];
  for (int64_t t = 1; t < tiles; ++t) {
    for (int64_t j = 0; j < kWidth; ++j) lanes[j] = larger(lanes[j], row[t * kTileElements + j]);
  }
  for (int64_t width = kWidth / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] = larger(lanes[j], lanes[j + width]);
  }
  return lanes[0];
}

// Σ of the unrounded weights, in the order of 32 lanes.
template <class T>
ATHANOR_INLINE float weigh_row(const float* row, int64_t tiles, float scale, float largest, T* weights) {
  float lanes[kWidth] = {};
  for (int64_t t = 0; t < tiles; ++t) {
    for (int64_t j = 0; j < kWidth; ++j) {
      const float p = exp_fast(row[t * kTileElements + j] * scale - largest);
      lanes[j] += p;
      store(weights[t * kWidth + j], p);
    }
  }
  for (int64_t width = kWidth / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

template <class T>
ATHANOR_INLINE void softmax(float* scores, int64_t num_rows, int64_t tiles, SeenColumns seen, float scale,
                            SoftmaxRows& rows, float* rescale, T* weights, int64_t ld) {
  if (!sees_all(seen, num_rows, tiles * kWidth)) hide(scores, num_rows, tiles, seen);
  for (int64_t i = 0; i < num_rows; ++i) {
    const float* row = scores + i * kWidth;
    const float largest = larger(rows.largest[i], largest_of_row(row, tiles) * scale);
    rescale[i] = exp_fast(rows.largest[i] - largest);
    rows.largest[i] = largest;
    rows.sum[i] = rows.sum[i] * rescale[i] + weigh_row(row, tiles, scale, largest, weights + i * ld);
  }
}

// Stores two neighbouring values of a step, or one value of fp32.
ATHANOR_INLINE void store_step(Bf16* to, int64_t j, float first, float second) {
  Bf16 low, high;
  store(low, first);
  store(high, second);
  const uint32_t both = uint32_t{high.bits} << 16 | low.bits;
  __builtin_memcpy(to + 2 * j, &both, sizeof both);
}
ATHANOR_INLINE void store_step(float* to, int64_t j, float first, float /*second*/) { to[j] = first; }

struct GradientRow {
  const float *score, *dp, *slope;
  float scale, logsumexp, dot;
  int64_t begin, end;

  ATHANOR_INLINE float p(int64_t at, int64_t column) const {
    const float weight = exp_fast(score[at] * scale - logsumexp);
    return column >= begin && column < end ? weight : 0.0f;
  }
  template <bool kCapped>
  ATHANOR_INLINE float ds(int64_t at, float p) const {
    return p * (dp[at] - dot) * (kCapped ? slope[at] : scale);
  }
};

template <bool kCapped, class T>
ATHANOR_INLINE void gradient(const float* scores, const float* dp, const float* slope, int64_t num_rows, int64_t tiles,
                             SeenColumns seen, float scale, const float* logsumexp, const float* dot, T* p_steps,
                             T* ds_steps, T* ds_rows, int64_t ld) {
  constexpr int64_t kRows = kStep<T>;
  for (int64_t i = 0; i < num_rows; i += kRows) {
    // A missing second row has only zero weights, whatever it reads of the first row.
    const bool has_next = kRows == 2 && i + 1 < num_rows;
    const int64_t next = has_next ? i + 1 : i;
    const auto row_of = [&](int64_t r, bool is_there) {
      return GradientRow{scores + r * kWidth,
                         dp + r * kWidth,
                         kCapped ? slope + r * kWidth : nullptr,
                         scale,
                         logsumexp[r],
                         dot[r],
                         seen.begin + r * seen.step,
                         is_there ? seen.end + r * seen.step : INT64_MIN};
    };
    const GradientRow first = row_of(i, true), second = row_of(next, has_next);
    T *p_to = p_steps + i * ld, *ds_to = ds_steps + i * ld, *row = ds_rows + i * ld, *next_row = ds_rows + next * ld;
    for (int64_t t = 0; t < tiles; ++t) {
      float p[2][kWidth], ds[2][kWidth];
      for (int64_t j = 0; j < kWidth; ++j) {
        const int64_t at = t * kTileElements + j, column = t * kWidth + j;
        p[0][j] = first.p(at, column);
        ds[0][j] = first.template ds<kCapped>(at, p[0][j]);
        if constexpr (kRows == 2) {
          p[1][j] = second.p(at, column);
          ds[1][j] = second.template ds<kCapped>(at, p[1][j]);
        }
      }
      for (int64_t j = 0; j < kWidth; ++j) {
        store_step(p_to + t * kWidth * kRows, j, p[0][j], p[kRows - 1][j]);
        store_step(ds_to + t * kWidth * kRows, j, ds[0][j], ds[kRows - 1][j]);
      }
      if (has_next) {
        for (int64_t j = 0; j < kWidth; ++j) store(next_row[t * kWidth + j], ds[kRows - 1][j]);
      }
      for (int64_t j = 0; j < kWidth; ++j) store(row[t * kWidth + j], ds[0][j]);
    }
  }
}

}  // namespace

ATHANOR_EACH_ISA void cap_tiles(float* scores, int64_t num_rows, int64_t num_tiles, float scale, float cap,
                                float* slope) {
  const float factor = scale / cap;
  for (int64_t t = 0; t < num_tiles; ++t) {
    for (int64_t at = t * kTileElements; at < t * kTileElements + num_rows * kWidth; ++at) {
      const float tanh = tanh_fast(scores[at] * factor);
      scores[at] = cap * tanh;
      if (slope) slope[at] = scale * (1.0f - tanh * tanh);
    }
  }
}

ATHANOR_EACH_ISA void scale_tiles(float* tiles, int64_t num_rows, int64_t num_tiles, const float* factor) {
  for (int64_t t = 0; t < num_tiles; ++t, tiles += kTileElements) {
    for (int64_t i = 0; i < num_rows; ++i) {
      for (int64_t j = 0; j < kWidth; ++j) tiles[i * kWidth + j] *= factor[i];
    }
  }
}

#define ATHANOR_SOFTMAX(T)                                                                                             \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void softmax_tiles<T>(float* scores, int64_t num_rows, int64_t tiles, SeenColumns seen,             \
                                         float scale, SoftmaxRows& rows, float* rescale, T* weights, int64_t ld) {     \
    softmax(scores, num_rows, tiles, seen, scale, rows, rescale, weights, ld);                                         \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void softmax_gradient_tiles<T>(                                                                     \
      const float* scores, const float* dp, const float* slope, int64_t num_rows, int64_t tiles, SeenColumns seen,     \
      float scale, const float* logsumexp, const float* dot, T* p_steps, T* ds_steps, T* ds_rows, int64_t ld) {        \
    if (slope)                                                                                                         \
      gradient<true>(scores, dp, slope, num_rows, tiles, seen, scale, logsumexp, dot, p_steps, ds_steps, ds_rows, ld); \
    else                                                                                                               \
      gradient<false>(scores, dp, slope, num_rows, tiles, seen, scale, logsumexp, dot, p_steps, ds_steps, ds_rows,     \
                      ld);                                                                                             \
  }                                                                                                                    \
  template <>                                                                                                          \
  ATHANOR_EACH_ISA void row_dots<T>(const T* a, int64_t a_ld, const T* b, int64_t b_ld, int64_t rows, int64_t width,   \
                                    float* dots) {                                                                     \
    for (int64_t i = 0; i < rows; ++i, a += a_ld, b += b_ld)                                                           \
      dots[i] = sum_over(width, [=](int64_t j) { return load(a[j]) * load(b[j]); });                                   \
  }

ATHANOR_SOFTMAX(float)
ATHANOR_SOFTMAX(Bf16)

}  // namespace athanor::kernels
