#pragma once
// A router on a device: from logits to choices, weights and sums, and back, with the formulas of kernels/router.h.
//
// Sums have the order of the CPU's kernels, so all results have the CPU's bits, except that a device's logarithm may
// differ in its last bit: logsumexp, and what is computed from it (z, the entropy, and the gradient of z). Choices
// never depend on it.
//
// All pointers are in the stream's memory. T is float or Bf16; rows are tokens.

#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/router.h"

namespace athanor::kernels::cuda {

/// By what experts are chosen, if not by their scores alone.
struct ChoosingRule {
  const float* noise = nullptr;  ///< [rows, width], added to the logits for choosing; null: none
  bool noise_alone = false;      ///< experts are chosen by `noise` itself
  const float* bias = nullptr;   ///< [width], added last; null: none
  float* chosen_by = nullptr;    ///< [rows, width], set to their sum; may be `noise` unless there is a bias, too
};

/// What router_sums needs to know of a row.
struct RowFacts {
  double entropy;   ///< the entropy of the row's probabilities, nats
  float score_sum;  ///< the divisor that makes probabilities of scores
  int32_t is_flat;  ///< 1 if all scores are equal, else 0
};

/// What route_rows writes.
struct RoutedRows {
  float* scores = nullptr;     ///< [rows, width]
  float* logsumexp = nullptr;  ///< [rows]
  RowFacts* facts = nullptr;   ///< [rows]; null: not wanted
  int64_t* ids = nullptr;      ///< [rows, k]: the choices, best first; of equal ones the lower index
  float* weights = nullptr;    ///< [rows, k]: the weights of the choices; null: not wanted
};

/// Computes `out` from logits [rows, width], in one launch.
/// @param given  ids [rows, k] that were chosen earlier, instead of out.ids; null: ids are chosen.
template <class T>
void route_rows(const Stream& stream, const T* logits, const RouterRule& rule, const ChoosingRule& choosing,
                const int64_t* given, const RoutedRows& out, int64_t rows);

/// kernels::router_weights.
void router_weights(const Stream& stream, const float* scores, const int64_t* ids, float* weights, int64_t rows,
                    const RouterRule& rule);

/// The sums over `sequences` sequences of `tokens` tokens each.
struct RoutedSums {
  float* prob_sum = nullptr;  ///< [sequences, width]: Σ over tokens of the probabilities
  float* z_sum = nullptr;     ///< [1]: Σ logsumexp²
  float* count = nullptr;     ///< [sequences, width]: choices before balancing; null: neither this nor `counts`
  /// [router_counts(width)]: choices of each expert before balancing; choices that each takes; moved, dropped, flat (as
  /// in moe::Routing); and the bits of the fp64 Σ of entropies.
  int64_t* counts = nullptr;
};

/// The number of elements of RoutedSums::counts.
inline int64_t router_counts(int64_t width) { return 2 * width + 4; }

/// Returns the number of doubles that `workspace` of router_sums must have.
int64_t router_sums_workspace(int64_t sequences, int64_t tokens, int64_t width);

/// Adds up, in two launches: tokens in pieces of 64, then the pieces in their order.
/// @param chosen  ids [tokens, k] of all sequences before balancing, and `ids` those after it (~expert: dropped); not
///                read if sums.count is null.
void router_sums(const Stream& stream, const float* scores, const float* logsumexp, const RowFacts* facts,
                 const int64_t* chosen, const int64_t* ids, const RoutedSums& sums, double* workspace,
                 int64_t sequences, int64_t tokens, const RouterRule& rule);

/// kernels::router_backward for `sequences` sequences of `tokens` tokens, with dprob_sum [sequences, width] and dz [1].
/// A gradient that is null is zero. `logits` is read for sigmoid scores only.
template <class T>
void router_backward(const Stream& stream, const T* logits, const float* scores, const float* logsumexp,
                     const int64_t* ids, const float* dweights, const float* dprob_sum, const float* dz, T* dlogits,
                     int64_t sequences, int64_t tokens, const RouterRule& rule);

}  // namespace athanor::kernels::cuda
