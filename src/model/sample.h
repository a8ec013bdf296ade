#pragma once
// Chooses the next token from logits.

#include <cstdint>

#include "base/random.h"
#include "ops/tensor.h"

namespace athanor {

struct Sampling {
  double temperature = 1.0;  ///< 0: the largest logit; if several are equal, the lowest id
  double top_p = 1.0;        ///< sample from the likeliest tokens whose probabilities first reach this sum
};

/// Returns the id of the next token.
/// @param logits  [V], any float type.
/// @param draw    in [0, 1): determines the token, unless the choice is greedy.
int64_t sample_token(const Tensor& logits, const Sampling& sampling, double draw);

}  // namespace athanor
