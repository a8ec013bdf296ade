#pragma once
// The unit between an expert's matrix products, by its numbers.

#include <limits>

namespace athanor {

/// gate · σ(slope · gate) · (up + offset), where gate is at most `limit` before that, and up within ±limit. The
/// defaults are SwiGLU (Shazeer 2020); gpt-oss has 1.702, 7 and 1.
struct GatedUnit {
  float slope = 1, limit = std::numeric_limits<float>::infinity(), offset = 0;

  bool operator==(const GatedUnit&) const = default;
  bool is_swiglu() const { return *this == GatedUnit{}; }
};

}  // namespace athanor
