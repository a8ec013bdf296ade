#pragma once
// The innermost loop of this project's matrix products on CPUs: a tile of at most 12 × 32 results, held in registers
// over all steps of a call.
//
// A step is what one instruction multiplies and adds in a lane: two bf16 values (vdpbf16ps), or one float, which may be
// a bf16 that packing has widened. A is read one step at a time and broadcast; B is a packed panel (gemm_pack.h). A
// result is one sum over ascending k for any shape. So its bits depend neither on the way in which a product is cut
// into tiles nor on the number of lanes of a register.

#include <cstdint>

#include "kernels/element.h"
#include "kernels/matmul_path.h"

namespace athanor::kernels {

// 24 sums of 16 floats, 2 registers of B and 1 of A leave 5 of the 32 registers of AVX-512 free. 24 independent sums
// hide the latency of an instruction (5 cycles, 2 a cycle) twice over, so that as few as 5 rows keep the units busy.
constexpr int64_t kTileRows = 12;
constexpr int64_t kTileColumns = 32;
constexpr int64_t kTileElements = kTileRows * kTileColumns;
constexpr int64_t kPanelAlignment = 64;  // bytes

/// Number of k values that one step covers: 2 for bf16, 1 for float.
template <class T>
constexpr int64_t kStep = 4 / static_cast<int64_t>(sizeof(T));

/// Memory to prefetch: `pairs` times two cache lines, `stride` bytes apart. A tile prefetches one pair in each step, so
/// that reading it overlaps with the multiplications and costs no extra time.
struct Prefetch {
  const char* lines = nullptr;
  int64_t stride = 0, pairs = 0;
};

/// Computes c[i][j] (+)= Σ_s a[i, s] · b[s, j] for i < rows <= 12, j < 32. bf16 products are exact; sums of pairs are
/// rounded as vdpbf16ps does: to nearest even, with subnormals as zero.
/// @param path         the instructions to use. Bf16 is valid on avx512_bf16 only, float on every path except kLibrary.
/// @param a            step s of row i begins at a + i · row_stride + s · step_stride, with strides in elements.
/// @param panel        [steps][32] steps, 64-byte aligned.
/// @param c            [12][32] fp32, 64-byte aligned.
/// @param add          add to the values in c instead of replacing them.
template <class T>
void gemm_tile(MatmulPath path, int64_t rows, const T* a, int64_t row_stride, int64_t step_stride, const T* panel,
               int64_t steps, float* c, bool add, Prefetch prefetch = {});

namespace avx2 {
/// gemm_tile<float> on AVX2 and FMA. It computes the 12 × 32 results as four tiles of 6 × 16, which fit the registers.
void gemm_tile(int64_t rows, const float* a, int64_t row_stride, int64_t step_stride, const float* panel, int64_t steps,
               float* c, bool add, Prefetch prefetch);
}  // namespace avx2

// Writes a tile's fp32 sums c [12][32] to memory: the first `rows` rows and `columns` columns.

/// Sets out[i · ld + j] = c[i][j], rounded once to nearest even.
template <class T>
void store_tile(const float* c, int64_t rows, int64_t columns, T* out, int64_t ld);

/// Computes sum[i · ld + j] += c[i][j].
void add_tile(const float* c, int64_t rows, int64_t columns, float* sum, int64_t ld);

}  // namespace athanor::kernels
