#pragma once
// Optimizers that update each element from that element alone: each is one formula, with which hosts (cpu/update.cpp),
// devices (cuda/update.cpp) and torch's tensors, where there are no kernels (ops/update.cpp), compute the same bits.
//
// A rule is called as rule(master, gradient, clip, state...): it sets the first kUpdated states, and returns the new
// master. V is a float or a tensor. clip(x) returns x within ±1, and counts the elements where that changes x. Decay is
// decoupled: master · (1 − lr · weight_decay), before the step. docs/optimizers.md has the sources.

#include "kernels/element.h"

namespace athanor::kernels {

/// m ← momentum · m + g; the step is m, or g + momentum · m with `nesterov`.
struct SgdRule {
  static constexpr const char* kName = "sgd";
  static constexpr int kStates = 1, kUpdated = 1;
  float lr, weight_decay, momentum;
  bool nesterov;

  template <class V, class Clip>
  ATHANOR_INLINE V operator()(const V& master, const V& g, const Clip& /*clip*/, V& m) const {
    m = momentum * m + g;
    return master * (1.0f - lr * weight_decay) - lr * (nesterov ? g + momentum * m : m);
  }
};

/// Sophia-G: m ← m + (1 − beta1) (g − m); the step is m / (rho · h + 1e-15), clipped to ±1.
struct SophiaRule {
  static constexpr const char* kName = "sophia";
  static constexpr int kStates = 2, kUpdated = 1;
  float lr, weight_decay, beta1, rho;

  template <class V, class Clip>
  ATHANOR_INLINE V operator()(const V& master, const V& g, const Clip& clip, V& m, const V& hessian) const {
    m = m + (1.0f - beta1) * (g - m);
    return master * (1.0f - lr * weight_decay) - lr * clip(m / (rho * hessian + 1e-15f));
  }
};

/// master ← master · keep − rate · direction, where the direction is in the gradient's memory, and not to be scaled.
struct SubtractRule {
  static constexpr const char* kName = "subtract";
  static constexpr int kStates = 0, kUpdated = 0;
  static constexpr bool kTakesDirection = true;
  float keep, rate;

  template <class V, class Clip>
  ATHANOR_INLINE V operator()(const V& master, const V& direction, const Clip& /*clip*/) const {
    return master * keep - rate * direction;
  }
};

#define ATHANOR_FOR_EACH_UPDATE_RULE(DO) DO(SgdRule) DO(SophiaRule) DO(SubtractRule)

template <class Rule>
inline constexpr bool kTakesDirection = requires {
  Rule::kTakesDirection;
};

/// The states of a rule, each with as many elements as there are masters.
template <class Rule>
struct RuleStates {
  float* at[Rule::kStates + 1] = {};

  ATHANOR_INLINE RuleStates from(int64_t i) const {
    RuleStates moved;
    for (int k = 0; k < Rule::kStates; ++k) moved.at[k] = at[k] + i;
    return moved;
  }
};

/// The clip of rules for floats.
struct CountedClip {
  int& count;

  ATHANOR_INLINE float operator()(float x) const {
    const float clipped = x > 1.0f ? 1.0f : x < -1.0f ? -1.0f : x;
    count += clipped != x ? 1 : 0;
    return clipped;
  }
};

}  // namespace athanor::kernels
