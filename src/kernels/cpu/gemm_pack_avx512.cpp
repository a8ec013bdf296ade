// Packing with AVX-512, for operands whose type stays.

#include "kernels/cpu/gemm_pack_forms.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of the undefined operand of an unmasked intrinsic.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#define ATHANOR_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

namespace athanor::kernels::avx512 {
namespace {

constexpr int64_t kAhead = 256;  // in bytes: 32 rows are more streams than the hardware's prefetcher follows

// Sets to[j · 32 + i] to from[i][j] for 16 × 16 words of 4 bytes; row i begins at from + i · stride bytes.
ATHANOR_AVX512 inline void transpose_words(const char* from, int64_t stride, char* to) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i) {
    _mm_prefetch(from + i * stride + kAhead, _MM_HINT_T0);
    r[i] = _mm512_loadu_si512(from + i * stride);
  }
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // r[i + c]: column c of each quarter, rows i to i + 3
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88),
                  low23 = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xdd),
                  high23 = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xdd);
    constexpr int64_t kLine = kTileColumns * 4;
    _mm512_store_si512(to + c * kLine, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_store_si512(to + (c + 8) * kLine, _mm512_shuffle_i32x4(low01, low23, 0xdd));
    _mm512_store_si512(to + (c + 4) * kLine, _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_store_si512(to + (c + 12) * kLine, _mm512_shuffle_i32x4(high01, high23, 0xdd));
  }
}

}  // namespace

// Packs rows k and k + 1 of 32 columns, column by column.
ATHANOR_AVX512 void rows_to_panel(const Bf16* b, int64_t ld, int64_t pairs, Bf16* panel) {
  alignas(64) uint16_t low[32], high[32];
  for (uint16_t i = 0; i < 16; ++i) {
    low[2 * i] = i, low[2 * i + 1] = static_cast<uint16_t>(32 + i);
    high[2 * i] = static_cast<uint16_t>(16 + i), high[2 * i + 1] = static_cast<uint16_t>(48 + i);
  }
  const __m512i take_low = _mm512_load_si512(low), take_high = _mm512_load_si512(high);
  for (int64_t p = 0; p < pairs; ++p, b += 2 * ld, panel += 64) {
    _mm_prefetch(b + 16 * ld, _MM_HINT_T0);
    _mm_prefetch(b + 17 * ld, _MM_HINT_T0);
    const __m512i even = _mm512_loadu_si512(b), odd = _mm512_loadu_si512(b + ld);
    _mm512_store_si512(panel, _mm512_permutex2var_epi16(even, take_low, odd));
    _mm512_store_si512(panel + 32, _mm512_permutex2var_epi16(even, take_high, odd));
  }
}

ATHANOR_AVX512 void rows_to_panel(const float* b, int64_t ld, int64_t rows, float* panel) {
  for (int64_t k = 0; k < rows; ++k, b += ld, panel += 32) {
    _mm_prefetch(b + 16 * ld, _MM_HINT_T0);
    _mm_prefetch(b + 16 * ld + 16, _MM_HINT_T0);
    _mm512_store_ps(panel, _mm512_loadu_ps(b));
    _mm512_store_ps(panel + 16, _mm512_loadu_ps(b + 16));
  }
}

template <class T>
int64_t columns_to_panel(const T* b, int64_t ld, int64_t steps, T* panel) {
  const auto* from = reinterpret_cast<const char*>(b);
  auto* to = reinterpret_cast<char*>(panel);
  const int64_t stride = ld * static_cast<int64_t>(sizeof(T));
  int64_t s = 0;
  for (; s + 16 <= steps; s += 16) {
    transpose_words(from + s * 4, stride, to + s * kTileColumns * 4);
    transpose_words(from + s * 4 + 16 * stride, stride, to + s * kTileColumns * 4 + 64);
  }
  return s;
}

// This stores 16 words although 12 are needed: the next step overwrites the rest, and a block has room for it at its
// end.
ATHANOR_AVX512 void rows_to_block(const Bf16* a, int64_t ld, int64_t pairs, int64_t columns, Bf16* block) {
  alignas(64) uint16_t both[32];
  for (uint16_t i = 0; i < 16; ++i) both[2 * i] = i, both[2 * i + 1] = static_cast<uint16_t>(32 + i);
  const __m512i take = _mm512_load_si512(both);
  const auto mask = static_cast<__mmask16>((1 << columns) - 1);
  for (int64_t p = 0; p < pairs; ++p, a += 2 * ld, block += 24) {
    const __m512i even = _mm512_maskz_loadu_epi16(mask, a), odd = _mm512_maskz_loadu_epi16(mask, a + ld);
    _mm512_storeu_si512(block, _mm512_permutex2var_epi16(even, take, odd));
  }
}

ATHANOR_AVX512 void rows_to_block(const float* a, int64_t ld, int64_t rows, int64_t columns, float* block) {
  const auto mask = static_cast<__mmask16>((1 << columns) - 1);
  for (int64_t k = 0; k < rows; ++k, a += ld, block += 12) _mm512_storeu_ps(block, _mm512_maskz_loadu_ps(mask, a));
}

template int64_t columns_to_panel<float>(const float*, int64_t, int64_t, float*);
template int64_t columns_to_panel<Bf16>(const Bf16*, int64_t, int64_t, Bf16*);

}  // namespace athanor::kernels::avx512

#endif
