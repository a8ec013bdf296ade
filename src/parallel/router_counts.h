#pragma once
// What the routers of a step counted.

#include <array>
#include <vector>

#include "ops/tensor.h"

namespace athanor::inline parallel {

/// Counts over the tokens of a microbatch, or of several after they have been added up, in training only. A
/// recomputation in backward counts nothing again. The rows are the sparse layers of the whole model, in order; a stage
/// leaves those of other stages at 0.
struct RouterCounts {
  Tensor chosen;       ///< [layers, experts] int64: choices of each expert, before balancing
  Tensor taken;        ///< [layers, experts] int64: choices that each expert took, after balancing
  Tensor to_rank;      ///< [layers, expert ranks] int64: tokens of which a rank took a choice; undefined for one rank
  Tensor entropy_sum;  ///< [layers] fp64: sum over tokens of the entropy of the probabilities, nats
  Tensor moved;        ///< [layers] int64: choices that balancing gave to another expert
  Tensor dropped;      ///< [layers] int64: choices that no expert took
  Tensor flat;         ///< [layers] int64: tokens whose scores were all equal

  bool defined() const { return taken.defined(); }  ///< false for dense models; then all tensors are undefined

  /// The counts of type int64.
  static constexpr std::array kCounts = {&RouterCounts::chosen, &RouterCounts::taken,   &RouterCounts::to_rank,
                                         &RouterCounts::moved,  &RouterCounts::dropped, &RouterCounts::flat};

  /// Returns those that are defined, in a fixed order.
  std::vector<Tensor*> tensors() {
    std::vector<Tensor*> defined;
    for (Tensor RouterCounts::*each : kCounts)
      if ((this->*each).defined()) defined.push_back(&(this->*each));
    if (entropy_sum.defined()) defined.push_back(&entropy_sum);
    return defined;
  }

  /// Adds up; an undefined tensor counts as zeros.
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

}  // namespace athanor::inline parallel
