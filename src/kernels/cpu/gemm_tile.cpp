#include "kernels/gemm_tile.h"

#include <array>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace athanor::kernels {

#if defined(__x86_64__)

namespace {

struct FloatStep {
  using Element = float;
  __attribute__((target("avx512f"), always_inline)) static inline __m512 broadcast(const float* a) {
    return _mm512_set1_ps(*a);
  }
  __attribute__((target("avx512f"), always_inline)) static inline __m512 panel(const float* b) {
    return _mm512_load_ps(b);
  }
  __attribute__((target("avx512f"), always_inline)) static inline __m512 multiply_add(__m512 sum, __m512 a, __m512 b) {
    return _mm512_fmadd_ps(a, b, sum);
  }
};

struct Bf16Step {
  using Element = Bf16;
  __attribute__((target("avx512f,avx512bf16"), always_inline)) static inline __m512bh broadcast(const Bf16* a) {
    int32_t pair;
    std::memcpy(&pair, a, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
  }
  __attribute__((target("avx512f,avx512bf16"), always_inline)) static inline __m512bh panel(const Bf16* b) {
    return (__m512bh)_mm512_load_si512(b);
  }
  __attribute__((target("avx512f,avx512bf16"), always_inline)) static inline __m512 multiply_add(__m512 sum, __m512bh a,
                                                                                                 __m512bh b) {
    return _mm512_dpbf16_ps(sum, a, b);
  }
};

template <class T>
using Tile = void (*)(const T* a, int64_t row_stride, int64_t step_stride, const T* panel, int64_t steps, float* c,
                      bool add, Prefetch prefetch);

// The body of a tile of kRows rows. It is a macro because GCC takes the instruction set of a function from its own
// attribute only. A packed block's strides are constants, so addresses need no registers. All loops over rows are
// unrolled: otherwise GCC keeps the sums in memory, and stores them in each step.
#define ATHANOR_TILE(NAME, STEP, TARGET)                                                                     \
  template <int kRows, bool kPacked>                                                                         \
  __attribute__((target(TARGET))) void NAME(const STEP::Element* a, int64_t row_stride, int64_t step_stride, \
                                            const STEP::Element* panel, int64_t steps, float* c, bool add,   \
                                            Prefetch prefetch) {                                             \
    using T = STEP::Element;                                                                                 \
    const int64_t next_row = kPacked ? kStep<T> : row_stride;                                                \
    const int64_t next_step = kPacked ? kTileRows * kStep<T> : step_stride;                                  \
    __m512 sum[kRows][2];                                                                                    \
    _Pragma("GCC unroll 12") for (int i = 0; i < kRows; ++i) {                                               \
      sum[i][0] = add ? _mm512_load_ps(c + i * kTileColumns) : _mm512_setzero_ps();                          \
      sum[i][1] = add ? _mm512_load_ps(c + i * kTileColumns + 16) : _mm512_setzero_ps();                     \
    }                                                                                                        \
    const T* const end = panel + steps * kTileColumns * kStep<T>;                                            \
    const T* const asking_end = panel + prefetch.pairs * kTileColumns * kStep<T>;                            \
    for (; panel < end; panel += kTileColumns * kStep<T>, a += next_step) {                                  \
      if (panel < asking_end) {                                                                              \
        __builtin_prefetch(prefetch.lines);                                                                  \
        __builtin_prefetch(prefetch.lines + 64);                                                             \
        prefetch.lines += prefetch.stride;                                                                   \
      }                                                                                                      \
      const auto left = STEP::panel(panel), right = STEP::panel(panel + 16 * kStep<T>);                      \
      _Pragma("GCC unroll 12") for (int i = 0; i < kRows; ++i) {                                             \
        const auto x = STEP::broadcast(a + i * next_row);                                                    \
        sum[i][0] = STEP::multiply_add(sum[i][0], x, left);                                                  \
        sum[i][1] = STEP::multiply_add(sum[i][1], x, right);                                                 \
      }                                                                                                      \
    }                                                                                                        \
    _Pragma("GCC unroll 12") for (int i = 0; i < kRows; ++i) {                                               \
      _mm512_store_ps(c + i * kTileColumns, sum[i][0]);                                                      \
      _mm512_store_ps(c + i * kTileColumns + 16, sum[i][1]);                                                 \
    }                                                                                                        \
  }

ATHANOR_TILE(float_tile, FloatStep, "avx512f")
ATHANOR_TILE(bf16_tile, Bf16Step, "avx512f,avx512bf16")
#undef ATHANOR_TILE

template <bool kPacked, int... kRows>
constexpr auto float_tiles(std::integer_sequence<int, kRows...>) {
  return std::array<Tile<float>, sizeof...(kRows)>{float_tile<kRows + 1, kPacked>...};
}
template <bool kPacked, int... kRows>
constexpr auto bf16_tiles(std::integer_sequence<int, kRows...>) {
  return std::array<Tile<Bf16>, sizeof...(kRows)>{bf16_tile<kRows + 1, kPacked>...};
}
constexpr auto kRowCounts = std::make_integer_sequence<int, kTileRows>();
constexpr std::array kFloatTiles = {float_tiles<false>(kRowCounts), float_tiles<true>(kRowCounts)};
constexpr std::array kBf16Tiles = {bf16_tiles<false>(kRowCounts), bf16_tiles<true>(kRowCounts)};

template <class T>
bool is_packed(int64_t row_stride, int64_t step_stride) {
  return row_stride == kStep<T> && step_stride == kTileRows * kStep<T>;
}

}  // namespace

template <>
void gemm_tile<float>(MatmulPath path, int64_t rows, const float* a, int64_t row_stride, int64_t step_stride,
                      const float* panel, int64_t steps, float* c, bool add, Prefetch prefetch) {
  if (path == MatmulPath::kAvx2)
    return avx2::gemm_tile(rows, a, row_stride, step_stride, panel, steps, c, add, prefetch);
  const auto& tiles = kFloatTiles[is_packed<float>(row_stride, step_stride)];
  tiles[static_cast<size_t>(rows - 1)](a, row_stride, step_stride, panel, steps, c, add, prefetch);
}

template <>
void gemm_tile<Bf16>(MatmulPath, int64_t rows, const Bf16* a, int64_t row_stride, int64_t step_stride,
                     const Bf16* panel, int64_t steps, float* c, bool add, Prefetch prefetch) {
  const auto& tiles = kBf16Tiles[is_packed<Bf16>(row_stride, step_stride)];
  tiles[static_cast<size_t>(rows - 1)](a, row_stride, step_stride, panel, steps, c, add, prefetch);
}

#else  // other processors have only the library's path

template <>
void gemm_tile<float>(MatmulPath, int64_t, const float*, int64_t, int64_t, const float*, int64_t, float*, bool,
                      Prefetch) {}
template <>
void gemm_tile<Bf16>(MatmulPath, int64_t, const Bf16*, int64_t, int64_t, const Bf16*, int64_t, float*, bool, Prefetch) {
}

#endif

namespace {

// The compiler knows the length of whole rows.
template <class Row>
ATHANOR_INLINE void for_each_row(int64_t rows, int64_t columns, Row row) {
  for (int64_t i = 0; i < rows; ++i) {
    if (columns == kTileColumns) {
      for (int64_t j = 0; j < kTileColumns; ++j) row(i, j);
    } else {
      for (int64_t j = 0; j < columns; ++j) row(i, j);
    }
  }
}

template <class T>
ATHANOR_INLINE void store_rows(const float* __restrict c, int64_t rows, int64_t columns, T* __restrict out,
                               int64_t ld) {
  for_each_row(rows, columns, [=](int64_t i, int64_t j) { store(out[i * ld + j], c[i * kTileColumns + j]); });
}

}  // namespace

template <>
ATHANOR_EACH_ISA void store_tile<float>(const float* c, int64_t rows, int64_t columns, float* out, int64_t ld) {
  store_rows(c, rows, columns, out, ld);
}
template <>
ATHANOR_EACH_ISA void store_tile<Bf16>(const float* c, int64_t rows, int64_t columns, Bf16* out, int64_t ld) {
  store_rows(c, rows, columns, out, ld);
}

ATHANOR_EACH_ISA void add_tile(const float* c, int64_t rows, int64_t columns, float* sum, int64_t ld) {
  for_each_row(rows, columns, [=](int64_t i, int64_t j) { sum[i * ld + j] += c[i * kTileColumns + j]; });
}

}  // namespace athanor::kernels
