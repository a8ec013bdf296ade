#pragma once
// The softmax of attention on the tiles of its scores, forward (online, Milakov and Gimelshein 2018; Dao et al. 2022)
// and backward.
//
// Scores come as gemm_tile gives them: tiles [12][32], side by side. Row i sees the first `visible` + i columns, which
// is what causal attention is. Weights leave as the next product reads them: in rows, [12][ld], or in steps of rows,
// [rows / step][ld][step], a transposed left factor that needs no packing.

#include <cstdint>

#include "kernels/gemm_tile.h"

namespace athanor::kernels {

/// What a row knows of the columns so far: their largest score (times scale) and Σ exp(score · scale − largest).
struct SoftmaxRows {
  float largest[kTileRows], sum[kTileRows];
};

/// weights[i][j] = exp(score · scale − largest), rounded, 0 where row i does not see column j; every row sees one at
/// least. `rows` moves on; rescale[i] is what earlier sums and products shrink by. Scores are overwritten.
template <class T>
void softmax_tiles(float* scores, int64_t num_rows, int64_t tiles, int64_t visible, float scale, SoftmaxRows& rows,
                   float* rescale, T* weights, int64_t ld);

/// tiles [12][32]: row i times factor[i].
void scale_tiles(float* tiles, int64_t num_rows, int64_t num_tiles, const float* factor);

/// p = exp(score · scale − logsumexp), 0 where row i does not see column j; ds = p · (dp − dot) · scale.
/// @param dp  tiles like the scores. @param p_steps, ds_steps  in steps of rows; rows beyond num_rows up to a whole
/// step are zero. @param ds_rows  ds in rows.
template <class T>
void softmax_gradient_tiles(const float* scores, const float* dp, int64_t num_rows, int64_t tiles, int64_t visible,
                            float scale, const float* logsumexp, const float* dot, T* p_steps, T* ds_steps, T* ds_rows,
                            int64_t ld);

/// dots[i] = Σ_j a[i][j] · b[i][j].
template <class T>
void row_dots(const T* a, int64_t a_ld, const T* b, int64_t b_ld, int64_t rows, int64_t width, float* dots);

}  // namespace athanor::kernels
