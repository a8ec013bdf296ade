#pragma once
// The softmax of attention on the tiles of its scores, forward (online, Milakov and Gimelshein 2018; Dao et al. 2022)
// and backward.
//
// Scores come in the form of gemm_tile: adjacent tiles [12][32], of whose columns a row sees some (SeenColumns).
// Weights are written in the form that the next product reads: in rows, [12][ld], or in steps of rows, [rows /
// step][ld][step], a transposed left factor that needs no packing.

#include <cstdint>

#include "kernels/gemm_tile.h"

namespace athanor::kernels {

/// Row i sees the columns from begin + i · step up to, and without, end + i · step. `begin` may be negative.
struct SeenColumns {
  int64_t end;
  int64_t step = 1;  ///< 1 in causal attention, 0 if all rows see the same columns
  int64_t begin = INT64_MIN / 2;
};

/// The state of each row over the columns so far: their largest score (times scale) and Σ exp(score · scale − largest).
/// It begins with −∞ and 0.
struct SoftmaxRows {
  float largest[kTileRows], sum[kTileRows];
};

/// Computes weights[i][j] = exp(score · scale − largest), rounded, or 0 if row i does not see column j; every row must
/// see at least one in the first call for it. Updates `rows`, and sets rescale[i] to the factor by which earlier sums
/// and products must be multiplied. Scores are overwritten.
template <class T>
void softmax_tiles(float* scores, int64_t num_rows, int64_t tiles, SeenColumns seen, float scale, SoftmaxRows& rows,
                   float* rescale, T* weights, int64_t ld);

/// Replaces the scores of tiles [12][32] by their soft cap, cap · tanh(score · scale / cap). Sets `slope`, in tiles
/// like the scores, to the derivative, scale · (1 − tanh²); null: not wanted.
void cap_tiles(float* scores, int64_t num_rows, int64_t num_tiles, float scale, float cap, float* slope);

/// Multiplies row i of the tiles [12][32] by factor[i].
void scale_tiles(float* tiles, int64_t num_rows, int64_t num_tiles, const float* factor);

/// Computes p = exp(score · scale − logsumexp), or 0 if row i does not see column j, and ds = p · (dp − dot) · scale.
/// @param dp                 the gradient of p, in tiles like the scores.
/// @param slope              of cap_tiles, if the scores are capped: then scale is 1, and ds = p · (dp − dot) · slope.
///                           Else null.
/// @param logsumexp, dot     one value for each row; dot is row_dots of the output and its gradient.
/// @param p_steps, ds_steps  p and ds in steps of rows; rows beyond num_rows up to a whole step are zero.
/// @param ds_rows            ds in rows.
template <class T>
void softmax_gradient_tiles(const float* scores, const float* dp, const float* slope, int64_t num_rows, int64_t tiles,
                            SeenColumns seen, float scale, const float* logsumexp, const float* dot, T* p_steps,
                            T* ds_steps, T* ds_rows, int64_t ld);

/// Computes dots[i] = Σ_j a[i][j] · b[i][j].
template <class T>
void row_dots(const T* a, int64_t a_ld, const T* b, int64_t b_ld, int64_t rows, int64_t width, float* dots);

}  // namespace athanor::kernels
