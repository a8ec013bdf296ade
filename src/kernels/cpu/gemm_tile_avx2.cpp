// The tile on AVX2 and FMA: 16 registers of 8 floats contain 6 × 16 results, two registers of B and one of A. A tile of
// 12 × 32 consists of four of them, each over all steps, so that packing, attention and the cut into parts are those of
// AVX-512; a half panel is one cache line for each step. 12 sums hide the latency of a multiply-add (4 or 5 cycles, 2 a
// cycle).

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/gemm_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace athanor::kernels::avx2 {

#if defined(__x86_64__)

namespace {

constexpr int64_t kRowsOfPart = 6, kColumnsOfPart = 16;

using Part = void (*)(const float* a, int64_t row_stride, int64_t step_stride, const float* panel, int64_t steps,
                      float* c, bool add, Prefetch prefetch);

template <int kRows, bool kPacked>
__attribute__((target("avx2,fma"))) void part(const float* a, int64_t row_stride, int64_t step_stride,
                                              const float* panel, int64_t steps, float* c, bool add,
                                              Prefetch prefetch) {
  const int64_t next_row = kPacked ? 1 : row_stride, next_step = kPacked ? kTileRows : step_stride;
  __m256 sum[kRows][2];  // in registers, if all loops over rows are unrolled
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    sum[i][0] = add ? _mm256_load_ps(c + i * kTileColumns) : _mm256_setzero_ps();
    sum[i][1] = add ? _mm256_load_ps(c + i * kTileColumns + 8) : _mm256_setzero_ps();
  }
  const float* const end = panel + steps * kTileColumns;
  const float* const asking_end = panel + prefetch.pairs * kTileColumns;
  for (; panel < end; panel += kTileColumns, a += next_step) {
    if (panel < asking_end) {
      __builtin_prefetch(prefetch.lines);
      __builtin_prefetch(prefetch.lines + 64);
      prefetch.lines += prefetch.stride;
    }
    const __m256 left = _mm256_load_ps(panel), right = _mm256_load_ps(panel + 8);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m256 x = _mm256_broadcast_ss(a + i * next_row);
      sum[i][0] = _mm256_fmadd_ps(x, left, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(x, right, sum[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    _mm256_store_ps(c + i * kTileColumns, sum[i][0]);
    _mm256_store_ps(c + i * kTileColumns + 8, sum[i][1]);
  }
}

template <bool kPacked, int... kRows>
constexpr auto parts(std::integer_sequence<int, kRows...>) {
  return std::array<Part, sizeof...(kRows)>{part<kRows + 1, kPacked>...};
}
constexpr auto kRowCounts = std::make_integer_sequence<int, kRowsOfPart>();
constexpr std::array kParts = {parts<false>(kRowCounts), parts<true>(kRowCounts)};

}  // namespace

void gemm_tile(int64_t rows, const float* a, int64_t row_stride, int64_t step_stride, const float* panel, int64_t steps,
               float* c, bool add, Prefetch prefetch) {
  const auto& of_rows = kParts[row_stride == 1 && step_stride == kTileRows];
  // Two parts of 4 and 3 rows are better than parts of 6 and 1, as a single row would wait for its own sums.
  const int64_t upper = rows > kRowsOfPart ? (rows + 1) / 2 : rows;
  for (int64_t j = 0; j < kTileColumns; j += kColumnsOfPart) {
    for (int64_t i = 0; i < rows; i += upper) {
      const int64_t count = std::min(upper, rows - i);
      of_rows[static_cast<size_t>(count - 1)](a + i * row_stride, row_stride, step_stride, panel + j, steps,
                                              c + i * kTileColumns + j, add, prefetch);
      prefetch = {};
    }
  }
}

#else

void gemm_tile(int64_t, const float*, int64_t, int64_t, const float*, int64_t, float*, bool, Prefetch) {}

#endif

}  // namespace athanor::kernels::avx2
