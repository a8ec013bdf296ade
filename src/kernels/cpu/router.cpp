#include "kernels/router.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace athanor::kernels {
namespace {

ATHANOR_INLINE int64_t expert_of(int64_t id) { return id < 0 ? ~id : id; }

template <class T>
ATHANOR_INLINE void scores_of(const T* logits, float* scores, float* logsumexp, int64_t rows, const RouterRule& rule) {
  const int64_t width = rule.width;
  for (int64_t row = 0; row < rows; ++row, logits += width, scores += width) {
    float largest = load(logits[0]);
    for (int64_t e = 1; e < width; ++e) largest = std::max(largest, load(logits[e]));
    for (int64_t e = 0; e < width; ++e) scores[e] = exp_fast(load(logits[e]) - largest);
    const float sum = sum_over(width, [&](int64_t e) { return scores[e]; });
    logsumexp[row] = largest + std::log(sum);
    if (rule.sigmoid) {
      for (int64_t e = 0; e < width; ++e) scores[e] = sigmoid(load(logits[e]));
    } else {
      for (int64_t e = 0; e < width; ++e) scores[e] /= sum;
    }
  }
}

// The divisor of a token's chosen scores.
ATHANOR_INLINE float chosen_sum(const float* scores, const int64_t* ids, const RouterRule& rule) {
  if (!rule.norm_topk_prob) return 1;
  float sum = 0;
  for (int64_t j = 0; j < rule.k; ++j) sum += scores[expert_of(ids[j])];
  return sum + kScoreEps;
}

// Returns Σ of a sigmoid router's scores, which turns them into probabilities; the scores of a softmax already are
// probabilities.
ATHANOR_INLINE float score_sum(const float* scores, const RouterRule& rule) {
  return rule.sigmoid ? sum_over(rule.width, [&](int64_t e) { return scores[e]; }) + kScoreEps : 1.0f;
}

template <class T>
ATHANOR_INLINE double entropy_of(const T* logits, const float* scores, float logsumexp, float sum,
                                 const RouterRule& rule) {
  if (!rule.sigmoid) {  // −log p = logsumexp − logit
    return std::max(0.0f, logsumexp - sum_over(rule.width, [&](int64_t e) { return scores[e] * load(logits[e]); }));
  }
  double entropy = 0;
  for (int64_t e = 0; e < rule.width; ++e) {
    const float p = scores[e] / sum;
    if (p > 0) entropy -= static_cast<double>(p * std::log(p));
  }
  return entropy;
}

template <class T>
ATHANOR_INLINE RouterSums sums_of(const T* logits, const float* scores, const float* logsumexp, float* prob_sum,
                                  int64_t rows, const RouterRule& rule) {
  RouterSums sums;
  for (int64_t row = 0; row < rows; ++row, logits += rule.width, scores += rule.width) {
    const float sum = score_sum(scores, rule);
    float least = scores[0], largest = scores[0];
    for (int64_t e = 0; e < rule.width; ++e) {
      prob_sum[e] += scores[e] / sum;
      least = std::min(least, scores[e]);
      largest = std::max(largest, scores[e]);
    }
    const auto z = static_cast<double>(logsumexp[row]);
    sums.z += z * z;
    sums.entropy += entropy_of(logits, scores, logsumexp[row], sum, rule);
    sums.num_flat += least == largest;
  }
  return sums;
}

// dscores += the gradient that comes through the weights. w_j = c · s_j / Σ s, so ds_j = c · (dw_j − Σ_i dw_i · s_i / Σ
// s) / Σ s.
ATHANOR_INLINE void add_weights_gradient(const float* scores, const int64_t* ids, const float* dweights, float* dscores,
                                         const RouterRule& rule) {
  const float sum = chosen_sum(scores, ids, rule);
  float mean = 0;
  if (rule.norm_topk_prob) {
    for (int64_t j = 0; j < rule.k; ++j) mean += ids[j] < 0 ? 0 : dweights[j] * scores[ids[j]] / sum;
  }
  for (int64_t j = 0; j < rule.k; ++j) {
    const float d = ids[j] < 0 ? 0 : dweights[j];
    dscores[expert_of(ids[j])] += rule.scaling_factor * (d - mean) / sum;
  }
}

template <class T>
ATHANOR_INLINE void backward(const T* logits, const float* scores, const float* logsumexp, const int64_t* ids,
                             const float* dweights, const float* dprob_sum, float dz, T* dlogits, int64_t rows,
                             const RouterRule& rule) {
  const int64_t width = rule.width;
  std::vector<float> buffer(static_cast<size_t>(width));
  float* ds = buffer.data();
  for (int64_t row = 0; row < rows; ++row) {
    if (rule.sigmoid) {  // p = s / Σ s, so ds = (dp − Σ p · dp) / Σ s
      const float sum = score_sum(scores, rule);
      const float mean = sum_over(width, [&](int64_t e) { return scores[e] * dprob_sum[e]; }) / sum;
      for (int64_t e = 0; e < width; ++e) ds[e] = (dprob_sum[e] - mean) / sum;
    } else {
      std::copy_n(dprob_sum, width, ds);
    }
    add_weights_gradient(scores, ids, dweights, ds, rule);
    const float dlogsumexp = 2 * dz * logsumexp[row];  // and ∂ logsumexp / ∂ logit is the softmax
    if (rule.sigmoid) {
      for (int64_t e = 0; e < width; ++e) {
        const float softmax = exp_fast(std::min(load(logits[e]) - logsumexp[row], 0.0f));
        store(dlogits[e], scores[e] * (1 - scores[e]) * ds[e] + dlogsumexp * softmax);
      }
    } else {
      const float mean = sum_over(width, [&](int64_t e) { return scores[e] * ds[e]; }) - dlogsumexp;
      for (int64_t e = 0; e < width; ++e) store(dlogits[e], scores[e] * (ds[e] - mean));
    }
    logits += width, scores += width, dlogits += width;
    ids += rule.k, dweights += rule.k;
  }
}

}  // namespace

void router_weights(const float* scores, const int64_t* ids, float* weights, int64_t rows, const RouterRule& rule) {
  for (int64_t row = 0; row < rows; ++row, scores += rule.width, ids += rule.k, weights += rule.k) {
    const float sum = chosen_sum(scores, ids, rule);
    for (int64_t j = 0; j < rule.k; ++j) {
      weights[j] = ids[j] < 0 ? 0 : scores[ids[j]] / sum * rule.scaling_factor;
    }
  }
}

#define ATHANOR_ROUTER(T)                                                                                     \
  template <>                                                                                                 \
  ATHANOR_EACH_ISA void router_scores<T>(const T* logits, float* scores, float* logsumexp, int64_t rows,      \
                                         const RouterRule& rule) {                                            \
    scores_of(logits, scores, logsumexp, rows, rule);                                                         \
  }                                                                                                           \
  template <>                                                                                                 \
  ATHANOR_EACH_ISA RouterSums router_sums<T>(const T* logits, const float* scores, const float* logsumexp,    \
                                             float* prob_sum, int64_t rows, const RouterRule& rule) {         \
    return sums_of(logits, scores, logsumexp, prob_sum, rows, rule);                                          \
  }                                                                                                           \
  template <>                                                                                                 \
  ATHANOR_EACH_ISA void router_backward<T>(const T* logits, const float* scores, const float* logsumexp,      \
                                           const int64_t* ids, const float* dweights, const float* dprob_sum, \
                                           float dz, T* dlogits, int64_t rows, const RouterRule& rule) {      \
    backward(logits, scores, logsumexp, ids, dweights, dprob_sum, dz, dlogits, rows, rule);                   \
  }

ATHANOR_ROUTER(float)
ATHANOR_ROUTER(Bf16)

}  // namespace athanor::kernels
