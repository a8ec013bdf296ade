#pragma once
// What QK-clip found in a step.

#include <cstdint>

namespace athanor::inline optim {

struct LargestLogit {
  double value = 0;           ///< the largest attention logit of the step, over all layers, heads and sequences
  int64_t layer = 0;          ///< the layer of the model that has it; of several the first
  int64_t clipped_heads = 0;  ///< query heads of all layers whose largest logit exceeded the threshold

  bool operator==(const LargestLogit&) const = default;
};

}  // namespace athanor::inline optim
