#pragma once
// A router's arithmetic between its logits and the experts: scores, weights of the chosen experts, sums for the losses,
// and their backward. Rows are tokens; arithmetic is fp32.

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Added to the sum of a token's scores before dividing by it. It is below the fp32 precision of any usual sum, and
/// avoids 0 / 0 if every score underflowed.
inline constexpr float kScoreEps = 1e-20f;

struct RouterRule {
  int64_t width = 0, k = 0;     ///< number of experts; number of choices of a token
  bool sigmoid = false;         ///< scores are each expert's sigmoid instead of a softmax over all
  bool norm_topk_prob = false;  ///< chosen scores are divided by their sum
  float scaling_factor = 1;     ///< then, chosen scores are multiplied by this
};

/// Computes scores [rows, width] and logsumexp [rows] from logits [rows, width]. logsumexp is over a row's logits, also
/// if scores are sigmoids.
template <class T>
void router_scores(const T* logits, float* scores, float* logsumexp, int64_t rows, const RouterRule& rule);

/// Computes weights [rows, k] from ids [rows, k]. An id below 0 is ~expert of a dropped choice: its weight is 0, but
/// its score still counts in the sum that norm_topk_prob divides by.
void router_weights(const float* scores, const int64_t* ids, float* weights, int64_t rows, const RouterRule& rule);

struct RouterSums {
  double z = 0;          ///< Σ logsumexp²
  double entropy = 0;    ///< entropy of the probabilities in nats, summed over rows
  int64_t num_flat = 0;  ///< rows whose scores are all equal
};

/// Adds the rows' probabilities (scores that sum to 1) to prob_sum [width], and returns the other sums over rows.
template <class T>
RouterSums router_sums(const T* logits, const float* scores, const float* logsumexp, float* prob_sum, int64_t rows,
                       const RouterRule& rule);

/// Computes dlogits [rows, width] from dweights [rows, k], dprob_sum [width] (the same for all rows) and dz, the
/// gradient of Σ logsumexp².
template <class T>
void router_backward(const T* logits, const float* scores, const float* logsumexp, const int64_t* ids,
                     const float* dweights, const float* dprob_sum, float dz, T* dlogits, int64_t rows,
                     const RouterRule& rule);

}  // namespace athanor::kernels
