#include "kernels/cuda/router.h"

#include <cfloat>
#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/top_k.h"

namespace athanor::kernels::cuda {
namespace {

using WarpTeam = Team<kWarp>;
static_assert(kLanes <= kWarp);

ATHANOR_INLINE int64_t chosen_expert(int64_t id) { return id < 0 ? ~id : id; }

// Returns sum_over(n, f): thread l adds lane l, and a warp's tree over lanes and zeros is that of sum_lanes.
template <class F>
ATHANOR_INLINE float lane_sum(const WarpTeam& team, int64_t n, F f) {
  return team.sum<float>([=](int thread) {
    float sum = 0;
    for (int64_t i = thread; thread < kLanes && i < n; i += kLanes) sum += f(i);
    return sum;
  });
}

// A softmax is e^(x − peak) / sum.
struct Softmax {
  float peak, sum;
};

template <class F>
ATHANOR_INLINE Softmax softmax_of(const WarpTeam& team, int64_t width, F x) {
  const float peak = team.max<float>([=](int thread) {
    float largest = x(0);
    for (int64_t e = thread; e < width; e += kWarp) largest = x(e) > largest ? x(e) : largest;
    return largest;
  });
  return {peak, lane_sum(team, width, [=](int64_t e) { return exp_fast(x(e) - peak); })};
}

template <class F>
ATHANOR_INLINE float score_of(const RouterRule& rule, const Softmax& softmax, F x, int64_t e) {
  return rule.sigmoid ? sigmoid(x(e)) : exp_fast(x(e) - softmax.peak) / softmax.sum;
}

// Returns whether a row has a score that no longer distinguishes experts whose logits differ: one that underflowed or,
// of sigmoids, one that rounding made 1.
template <class F>
ATHANOR_INLINE bool loses_order(const WarpTeam& team, const RouterRule& rule, F score) {
  return team.max<float>([=](int thread) {
    float lost = 0;
    for (int64_t e = thread; e < rule.width; e += kWarp) {
      const float value = score(e);
      if (value < FLT_MIN || (rule.sigmoid && value == 1)) lost = 1;
    }
    return lost;
  }) > 0;
}

// Returns minus the place of expert e in the order of `first`, and among its equals of `second`.
template <class F, class G>
ATHANOR_INLINE float place_of(int64_t e, int64_t width, F first, G second) {
  const float own = first(e), own_second = second(e);
  int64_t before = 0;
  for (int64_t other = 0; other < width; ++other) {
    const float value = first(other);
    if (value > own) ++before;
    if (value != own || other == e) continue;
    const float value_second = second(other);
    if (value_second > own_second || (value_second == own_second && other < e)) ++before;
  }
  return -static_cast<float>(before);
}

// Sets `by` to what experts are chosen by. It may be choosing.noise if there is no bias.
template <class T>
ATHANOR_INLINE void set_chosen_by(const WarpTeam& team, const T* logits, const RouterRule& rule,
                                  const ChoosingRule& choosing, const float* scores, float* by) {
  const bool is_noisy = choosing.noise && !choosing.noise_alone;
  const float *noise = choosing.noise ? choosing.noise + team.index() * rule.width : nullptr, *bias = choosing.bias;
  const auto noisy = [=](int64_t e) { return load(logits[e]) + noise[e]; };
  const Softmax softmax = is_noisy && !rule.sigmoid ? softmax_of(team, rule.width, noisy) : Softmax{};
  const auto score = [=](int64_t e) { return score_of(rule, softmax, noisy, e); };
  const bool by_logits = is_noisy && loses_order(team, rule, score);
  team.each([=](int thread) {
    for (int64_t e = thread; e < rule.width; e += kWarp) {
      if (by_logits) {
        by[e] = bias ? place_of(
                           e, rule.width, [=](int64_t i) { return score(i) + bias[i]; }, noisy)
                     : noisy(e);
        continue;
      }
      const float value = is_noisy ? score(e) : noise ? noise[e] : scores[e];
      by[e] = bias && !choosing.noise_alone ? value + bias[e] : value;
    }
  });
}

// Returns the divisor of a token's chosen scores, added in their order.
ATHANOR_INLINE float chosen_sum(const float* scores, const int64_t* ids, const RouterRule& rule) {
  if (!rule.norm_topk_prob) return 1;
  float sum = 0;
  for (int64_t j = 0; j < rule.k; ++j) sum += scores[chosen_expert(ids[j])];
  return sum + kScoreEps;
}

ATHANOR_INLINE void write_weights(const WarpTeam& team, const float* scores, const int64_t* ids, float* weights,
                                  const RouterRule& rule) {
  team.each([=](int thread) {
    const float sum = chosen_sum(scores, ids, rule);
    for (int64_t j = thread; j < rule.k; j += kWarp)
      weights[j] = ids[j] < 0 ? 0 : scores[ids[j]] / sum * rule.scaling_factor;
  });
}

ATHANOR_INLINE float score_sum(const WarpTeam& team, const float* scores, const RouterRule& rule) {
  return rule.sigmoid ? lane_sum(team, rule.width, [=](int64_t e) { return scores[e]; }) + kScoreEps : 1.0f;
}

template <class T>
ATHANOR_INLINE RowFacts facts_of(const WarpTeam& team, const T* logits, const float* scores, float logsumexp,
                                 const RouterRule& rule) {
  RowFacts facts{0, score_sum(team, scores, rule), 0};
  const float sum = facts.score_sum;
  const int64_t width = rule.width;
  const int uneven = team.max<int>([=](int thread) {
    int found = 0;
    for (int64_t e = thread; e < width; e += kWarp) found |= scores[e] == scores[0] ? 0 : 1;
    return found;
  });
  facts.is_flat = 1 - uneven;
  if (rule.sigmoid) {
    facts.entropy = team.sum<double>([=](int thread) {
      double entropy = 0;
      for (int64_t e = thread; e < width; e += kWarp) {
        const float p = scores[e] / sum;
        if (p > 0) entropy -= static_cast<double>(p * std::log(p));
      }
      return entropy;
    });
  } else {  // −log p = logsumexp − logit
    const float entropy = logsumexp - lane_sum(team, width, [=](int64_t e) { return scores[e] * load(logits[e]); });
    facts.entropy = static_cast<double>(entropy > 0 ? entropy : 0.0f);
  }
  return facts;
}

}  // namespace

template <class T>
void route_rows(const Stream& stream, const T* all_logits, const RouterRule& rule, const ChoosingRule& choosing,
                const int64_t* given, const RoutedRows& out, int64_t rows) {
  if (rule.width > kLongestRow) fail_launch("route_rows", "a row is longer than an index of its keys");
  for_each_team<kWarp>(stream, "route_rows", rows, [=] ATHANOR_BODY(const WarpTeam& team) {
    const int64_t row = team.index(), width = rule.width;
    const T* logits = all_logits + row * width;
    float* scores = out.scores + row * width;
    const auto x = [=](int64_t e) { return load(logits[e]); };
    const Softmax softmax = softmax_of(team, width, x);
    const float logsumexp = softmax.peak + std::log(softmax.sum);
    team.each([=](int thread) {
      if (thread == 0) out.logsumexp[row] = logsumexp;
      for (int64_t e = thread; e < width; e += kWarp) scores[e] = score_of(rule, softmax, x, e);
    });
    if (out.facts) {
      const RowFacts facts = facts_of(team, logits, scores, logsumexp, rule);
      team.each([=](int thread) {
        if (thread == 0) out.facts[row] = facts;
      });
    }
    const int64_t* ids = given ? given + row * rule.k : out.ids + row * rule.k;
    if (!given) {
      const bool by_scores = !choosing.noise && !choosing.bias;
      float* by = by_scores ? scores : choosing.chosen_by + row * width;
      if (!by_scores) set_chosen_by(team, logits, rule, choosing, scores, by);
      top_k_of(team, by, width, out.ids + row * rule.k, rule.k);
    }
    if (out.weights) write_weights(team, scores, ids, out.weights + row * rule.k, rule);
  });
}

void router_weights(const Stream& stream, const float* scores, const int64_t* ids, float* weights, int64_t rows,
                    const RouterRule& rule) {
  for_each_team<kWarp>(stream, "router_weights", rows, [=] ATHANOR_BODY(const WarpTeam& team) {
    const int64_t first = team.index() * rule.k;
    write_weights(team, scores + team.index() * rule.width, ids + first, weights + first, rule);
  });
}

namespace {

// The gradient of a token's chosen scores that comes through its weights: w_j = c · s_j / Σ s, so ds_j = c · (dw_j −
// Σ_i dw_i · s_i / Σ s) / Σ s.
struct WeightsGradient {
  const int64_t* ids;
  const float* dweights;
  float sum, mean;

  ATHANOR_INLINE WeightsGradient(const float* scores, const int64_t* all_ids, const float* all_dweights,
                                 const RouterRule& rule)
      : ids(all_ids), dweights(all_dweights), sum(chosen_sum(scores, all_ids, rule)), mean(0) {
    if (!rule.norm_topk_prob || !dweights) return;
    for (int64_t j = 0; j < rule.k; ++j) mean += ids[j] < 0 ? 0 : dweights[j] * scores[ids[j]] / sum;
  }
  // Returns ds plus the gradient of expert e.
  ATHANOR_INLINE float add_to(float ds, int64_t e, const RouterRule& rule) const {
    for (int64_t j = 0; dweights && j < rule.k; ++j) {
      if (chosen_expert(ids[j]) != e) continue;
      ds += rule.scaling_factor * ((ids[j] < 0 ? 0 : dweights[j]) - mean) / sum;
    }
    return ds;
  }
};

}  // namespace

template <class T>
void router_backward(const Stream& stream, const T* all_logits, const float* all_scores, const float* logsumexp,
                     const int64_t* ids, const float* dweights, const float* dprob_sum, const float* dz, T* all_dlogits,
                     int64_t sequences, int64_t tokens, const RouterRule& rule) {
  for_each_team<kWarp>(stream, "router_backward", sequences * tokens, [=] ATHANOR_BODY(const WarpTeam& team) {
    const int64_t row = team.index(), width = rule.width;
    const float *scores = all_scores + row * width, *dprob = dprob_sum ? dprob_sum + row / tokens * width : nullptr;
    T* dlogits = all_dlogits + row * width;
    const WeightsGradient weights(scores, ids + row * rule.k, dweights ? dweights + row * rule.k : nullptr, rule);
    const float dlogsumexp = dz ? 2 * *dz * logsumexp[row] : 0.0f;  // and ∂ logsumexp / ∂ logit is the softmax
    if (!rule.sigmoid) {
      const auto ds = [=](int64_t e) { return weights.add_to(dprob ? dprob[e] : 0, e, rule); };
      const float mean = lane_sum(team, width, [=](int64_t e) { return scores[e] * ds(e); }) - dlogsumexp;
      team.each([=](int thread) {
        for (int64_t e = thread; e < width; e += kWarp) store(dlogits[e], scores[e] * (ds(e) - mean));
      });
      return;
    }
    // p = s / Σ s, so ds = (dp − Σ p · dp) / Σ s
    const T* logits = all_logits + row * width;
    const float sum = score_sum(team, scores, rule);
    const float mean = dprob ? lane_sum(team, width, [=](int64_t e) { return scores[e] * dprob[e]; }) / sum : 0.0f;
    team.each([=](int thread) {
      for (int64_t e = thread; e < width; e += kWarp) {
        const float ds = weights.add_to(dprob ? (dprob[e] - mean) / sum : 0, e, rule);
        const float below = load(logits[e]) - logsumexp[row], softmax = exp_fast(below < 0 ? below : 0.0f);
        store(dlogits[e], scores[e] * (1 - scores[e]) * ds + dlogsumexp * softmax);
      }
    });
  });
}

#define ATHANOR_CUDA_ROUTER(T)                                                                                        \
  template void route_rows<T>(const Stream&, const T*, const RouterRule&, const ChoosingRule&, const int64_t*,        \
                              const RoutedRows&, int64_t);                                                            \
  template void router_backward<T>(const Stream&, const T*, const float*, const float*, const int64_t*, const float*, \
                                   const float*, const float*, T*, int64_t, int64_t, const RouterRule&);

ATHANOR_CUDA_ROUTER(float)
ATHANOR_CUDA_ROUTER(Bf16)

}  // namespace athanor::kernels::cuda
