#pragma once
// What the routers of a step counted.

#include <array>

#include "ops/tensor.h"

namespace athanor {

/// Counts of the routers of a stage, layer by layer, counted once and in training only. The rows are the sparse layers
/// of the whole model; those of other stages hold 0.
struct RouterCounts {
  Tensor chosen;       ///< [layers, experts] int64: choices of each expert, before balancing
  Tensor taken;        ///< [layers, experts] int64: choices that each expert took
  Tensor to_rank;      ///< [layers, expert ranks] int64: tokens with a choice on each rank; undefined for one rank
  Tensor entropy_sum;  ///< [layers] fp64: sum over tokens of the entropy of the probabilities, nats
  Tensor moved;        ///< [layers] int64: choices that balancing gave to another expert
  Tensor dropped;      ///< [layers] int64: choices that no expert took
  Tensor flat;         ///< [layers] int64: tokens whose scores were all equal

  bool defined() const { return taken.defined(); }  ///< false for dense models

  /// The counts of type int64.
  static constexpr std::array kCounts = {&RouterCounts::chosen, &RouterCounts::taken,   &RouterCounts::to_rank,
                                         &RouterCounts::moved,  &RouterCounts::dropped, &RouterCounts::flat};

  RouterCounts& operator+=(const RouterCounts& other) {
    const auto add = [&](Tensor RouterCounts::*counts) {
      if (!(other.*counts).defined()) return;
      this->*counts = (this->*counts).defined() ? this->*counts + other.*counts : other.*counts;
    };
    for (Tensor RouterCounts::*counts : kCounts) add(counts);
    add(&RouterCounts::entropy_sum);
    return *this;
  }
};

}  // namespace athanor
