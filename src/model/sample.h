#pragma once
// From logits to the next token.

#include <cstdint>

#include "base/random.h"
#include "ops/tensor.h"

namespace athanor {

struct Sampling {
  double temperature = 1.0;  ///< 0: the largest logit, the lowest id among equals
  double top_p = 1.0;        ///< sample from the likeliest tokens whose probabilities first reach this sum
};

/// @param logits [V], any float type. @param draw in [0, 1): decides, unless greedy.
int64_t sample_token(const Tensor& logits, const Sampling& sampling, double draw);

}  // namespace athanor
