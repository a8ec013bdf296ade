// Packing into fp32 with AVX2; bf16 is widened at the same time, which is a shift.

#include <algorithm>

#include "kernels/cpu/gemm_pack_forms.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define ATHANOR_AVX2 __attribute__((target("avx2,fma")))
#define ATHANOR_AVX2_INLINE __attribute__((target("avx2,fma"), always_inline)) inline

namespace athanor::kernels::avx2 {
namespace {

constexpr int64_t kAhead = 256;  // in bytes: 32 rows are more streams than the hardware's prefetcher follows
constexpr int64_t kLine = 64;

ATHANOR_AVX2_INLINE __m256 load8(const float* from) { return _mm256_loadu_ps(from); }
ATHANOR_AVX2_INLINE __m256 load8(const Bf16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
ATHANOR_AVX2_INLINE __m128 load4(const float* from) { return _mm_loadu_ps(from); }
ATHANOR_AVX2_INLINE __m128 load4(const Bf16* from) {
  const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(bits), 16));
}

// Sets to[j · kWidth + i] to element j of row i, for 4 rows and 8 columns.
template <int64_t kWidth, class T>
ATHANOR_AVX2_INLINE void transpose_4_by_8(const T* r0, const T* r1, const T* r2, const T* r3, float* to) {
  const __m256 a = load8(r0), b = load8(r1), c = load8(r2), d = load8(r3);
  const __m256 low01 = _mm256_unpacklo_ps(a, b), high01 = _mm256_unpackhi_ps(a, b);
  const __m256 low23 = _mm256_unpacklo_ps(c, d), high23 = _mm256_unpackhi_ps(c, d);
  const __m256 columns[4] = {_mm256_shuffle_ps(low01, low23, 0x44), _mm256_shuffle_ps(low01, low23, 0xee),
                             _mm256_shuffle_ps(high01, high23, 0x44), _mm256_shuffle_ps(high01, high23, 0xee)};
  for (int64_t j = 0; j < 4; ++j) {  // column j in the lower half, j + 4 in the upper
    _mm_storeu_ps(to + j * kWidth, _mm256_castps256_ps128(columns[j]));
    _mm_storeu_ps(to + (j + 4) * kWidth, _mm256_extractf128_ps(columns[j], 1));
  }
}

// Rows become the columns of [k][kWidth], 4 at a time with one cache line each: rows may be so far apart in memory that
// all of their lines map to the same set of the cache. If there are fewer than kWidth rows, the last fills the other
// columns, which no tile reads.
template <int64_t kWidth, class T>
ATHANOR_AVX2_INLINE int64_t columns_to(const T* from, int64_t ld, int64_t k, int64_t rows, float* to) {
  constexpr int64_t kOfLine = kLine / static_cast<int64_t>(sizeof(T));
  const int64_t whole = k / 8 * 8;
  for (int64_t line = 0; line < whole; line += kOfLine) {
    const int64_t end = std::min(whole, line + kOfLine);
    for (int64_t i = 0; i < kWidth; i += 4) {
      const auto row = [=](int64_t r) { return from + std::min(i + r, rows - 1) * ld; };
      const T *r0 = row(0), *r1 = row(1), *r2 = row(2), *r3 = row(3);
      for (const T* r : {r0, r1, r2, r3}) __builtin_prefetch(reinterpret_cast<const char*>(r + line) + kAhead);
      for (int64_t j = line; j < end; j += 8)
        transpose_4_by_8<kWidth>(r0 + j, r1 + j, r2 + j, r3 + j, to + j * kWidth + i);
    }
  }
  return whole;
}

template <class T>
ATHANOR_AVX2 void widen_rows(const T* b, int64_t ld, int64_t rows, float* panel) {
  for (int64_t k = 0; k < rows; ++k, b += ld, panel += kTileColumns) {
    __builtin_prefetch(b + 16 * ld);
    if constexpr (sizeof(T) == 4) __builtin_prefetch(b + 16 * ld + 16);
    for (int64_t j = 0; j < kTileColumns; j += 8) _mm256_store_ps(panel + j, load8(b + j));
  }
}

template <class T>
ATHANOR_AVX2 void widen_12_columns(const T* a, int64_t ld, int64_t rows, float* block) {
  for (int64_t k = 0; k < rows; ++k, a += ld, block += kTileRows) {
    _mm256_storeu_ps(block, load8(a));
    _mm_storeu_ps(block + 8, load4(a + 8));
  }
}

template <int64_t kWidth, class T>
ATHANOR_AVX2 int64_t widen_columns(const T* from, int64_t ld, int64_t k, int64_t rows, float* to) {
  return columns_to<kWidth>(from, ld, k, rows, to);
}

}  // namespace

template <class T>
void rows_to_panel(const T* b, int64_t ld, int64_t rows, float* panel) {
  widen_rows(b, ld, rows, panel);
}
template <class T>
int64_t columns_to_panel(const T* b, int64_t ld, int64_t k, float* panel) {
  return widen_columns<kTileColumns>(b, ld, k, kTileColumns, panel);
}
template <class T>
int64_t columns_to_block(const T* a, int64_t ld, int64_t k, int64_t rows, float* block) {
  return widen_columns<kTileRows>(a, ld, k, rows, block);
}
template <class T>
void rows_to_block(const T* a, int64_t ld, int64_t rows, float* block) {
  widen_12_columns(a, ld, rows, block);
}

#define ATHANOR_FORMS(T)                                                             \
  template void rows_to_panel<T>(const T*, int64_t, int64_t, float*);                \
  template int64_t columns_to_panel<T>(const T*, int64_t, int64_t, float*);          \
  template int64_t columns_to_block<T>(const T*, int64_t, int64_t, int64_t, float*); \
  template void rows_to_block<T>(const T*, int64_t, int64_t, float*);
ATHANOR_FORMS(float)
ATHANOR_FORMS(Bf16)

}  // namespace athanor::kernels::avx2

#endif
