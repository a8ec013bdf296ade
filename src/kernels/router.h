#pragma once
// A router's arithmetic between its logits and the experts: scores, weights of the chosen ones, sums for the losses,
// and their backward. Rows are tokens; all of it fp32 inside.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Sums of a token's scores get this added before they divide: invisible in fp32 beside any usual sum, and no 0 / 0
/// where every score underflowed.
inline constexpr float kScoreEps = 1e-20f;

struct RouterRule {
  int64_t width = 0, k = 0;     ///< experts, choices of a token
  bool sigmoid = false;         ///< scores are each expert's sigmoid rather than a softmax over all
  bool norm_topk_prob = false;  ///< chosen scores are divided by their sum,
  float scaling_factor = 1;     ///< then multiplied by this
};

/// scores [rows, width] and logsumexp [rows] of logits [rows, width].
template <class T>
void router_scores(const T* logits, float* scores, float* logsumexp, int64_t rows, const RouterRule& rule);

/// weights [rows, k] from ids [rows, k]. An id below 0 is ~expert, a choice that was dropped: its weight is 0, but its
/// score counts in the sum that norm_topk_prob divides by, as if it were there.
void router_weights(const float* scores, const int64_t* ids, float* weights, int64_t rows, const RouterRule& rule);

struct RouterSums {
  double z = 0;          ///< Σ logsumexp²
  double entropy = 0;    ///< of the probabilities, nats
  int64_t num_flat = 0;  ///< rows whose scores are all equal
};

/// Adds the rows' probabilities (scores that sum to 1) into prob_sum [width].
template <class T>
RouterSums router_sums(const T* logits, const float* scores, const float* logsumexp, float* prob_sum, int64_t rows,
                       const RouterRule& rule);

/// dlogits [rows, width] from dweights [rows, k], dprob_sum [width] (the same for all rows) and the gradient of Σ
/// logsumexp².
template <class T>
void router_backward(const T* logits, const float* scores, const float* logsumexp, const int64_t* ids,
                     const float* dweights, const float* dprob_sum, float dz, T* dlogits, int64_t rows,
                     const RouterRule& rule);

}  // namespace athanor::kernels
