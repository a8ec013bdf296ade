#pragma once
// Gated units (base/gated_unit.h) of one element, on the CPU and on devices.

#include "base/gated_unit.h"
#include "kernels/element.h"

namespace athanor::kernels {

/// The two factors of a gated unit, and their derivatives by gate and up. SwiGLU is compiled without the operations
/// that would change nothing.
template <bool kSwiGlu>
struct GatedTerms {
  float silu, factor;        ///< gate · σ and up, after clamps and with the offset
  float by_gate, by_up = 1;  ///< d silu / d gate and d factor / d up; a clamped value has none

  ATHANOR_INLINE GatedTerms(const GatedUnit& unit, float gate, float up) {
    const bool clamps_gate = !kSwiGlu && gate > unit.limit;
    const float g = clamps_gate ? unit.limit : gate, s = sigmoid(kSwiGlu ? g : unit.slope * g);
    silu = g * s;
    factor = up;
    by_gate = s + silu * (1.0f - s);
    if (kSwiGlu) return;
    const bool clamps_up = up > unit.limit || up < -unit.limit;
    factor = (clamps_up ? (up > 0 ? unit.limit : -unit.limit) : up) + unit.offset;
    by_gate = clamps_gate ? 0.0f : s + unit.slope * silu * (1.0f - s);
    by_up = clamps_up ? 0.0f : 1.0f;
  }
};

}  // namespace athanor::kernels
