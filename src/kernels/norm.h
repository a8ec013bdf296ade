#pragma once
// RMSNorm (Zhang and Sennrich 2019) and LayerNorm without parameters (OLMo), forward and backward, on rows.
//
// Rows are independent; callers split them over threads. Callers also cut the rows into blocks of a fixed length, and
// pass a separate dw_partial for each block, so that the order of additions depends on that length only. x, y, dx, dy,
// sum and branch are [rows, width].

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

// The scale of RMSNorm is w + offset: an offset of 1 is that of Gemma, whose weights begin as zeros.

/// Computes y = x · rstd · (w + offset) with rstd = 1 / sqrt(mean(x²) + eps). x, y [rows, width]; w [width]; rstd
/// [rows] is output for backward.
template <class T>
void rms_norm_forward(const T* x, const T* w, T* y, float* rstd, int64_t rows, int64_t width, float eps,
                      float offset = 0);

/// Computes dx, and dw_partial [width] += Σ_rows dy · x · rstd.
template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* w, const float* rstd, T* dx, float* dw_partial, int64_t rows,
                       int64_t width, float offset = 0);

// The four functions below are RMSNorm in two halves for rows whose columns are spread over several ranks: the caller
// adds up the sums over ranks between the halves.

/// Computes sums [rows] = Σ x² over these columns.
template <class T>
void square_sums(const T* x, float* sums, int64_t rows, int64_t width);

/// Computes y = x · rstd · (w + offset).
template <class T>
void rms_norm_scale(const T* x, const T* w, const float* rstd, T* y, int64_t rows, int64_t width, float offset = 0);

/// Computes dots [rows] = Σ dy · (w + offset) · x · rstd over these columns.
template <class T>
void rms_norm_dots(const T* dy, const T* x, const T* w, const float* rstd, float* dots, int64_t rows, int64_t width,
                   float offset = 0);

/// As rms_norm_backward, with means [rows]: the dots summed over all ranks, divided by the width of a whole row.
template <class T>
void rms_norm_backward_of_means(const T* dy, const T* x, const T* w, const float* rstd, const float* means, T* dx,
                                float* dw_partial, int64_t rows, int64_t width, float offset = 0);

/// Computes y = (x − mean) · rstd. mean and rstd [rows] are output for backward.
template <class T>
void layer_norm_forward(const T* x, T* y, float* mean, float* rstd, int64_t rows, int64_t width, float eps);

template <class T>
void layer_norm_backward(const T* dy, const T* x, const float* mean, const float* rstd, T* dx, int64_t rows,
                         int64_t width);

/// Computes sum = x + branch, rounded to T, then the norm of that rounded sum.
template <class T>
void add_rms_norm_forward(const T* x, const T* branch, const T* w, T* sum, T* y, float* rstd, int64_t rows,
                          int64_t width, float eps, float offset = 0);

/// Computes dx = dsum + the norm's dx, which is rounded before it is added, as if the two were separate ops. `x` is the
/// sum of the forward pass.
template <class T>
void add_rms_norm_backward(const T* dsum, const T* dy, const T* x, const T* w, const float* rstd, T* dx,
                           float* dw_partial, int64_t rows, int64_t width, float offset = 0);

template <class T>
void add_layer_norm_forward(const T* x, const T* branch, T* sum, T* y, float* mean, float* rstd, int64_t rows,
                            int64_t width, float eps);

template <class T>
void add_layer_norm_backward(const T* dsum, const T* dy, const T* x, const float* mean, const float* rstd, T* dx,
                             int64_t rows, int64_t width);

}  // namespace athanor::kernels
