#pragma once
// Chooses the next token from logits.

#include <cstdint>

#include "base/random.h"
#include "ops/tensor.h"

namespace athanor::inline model {

struct Sampling {
  double temperature = 1.0;  ///< divides the logits; 0: the token with the largest logit, of equal ones the lowest id
  /// Only the fewest likeliest tokens whose probabilities (after the temperature) add up to this are sampled from.
  double top_p = 1.0;
};

/// Returns the id of the next token.
/// @param logits  [V], any float type.
/// @param draw    a uniform random number in [0, 1): it selects the token, unless temperature is 0.
int64_t sample_token(const Tensor& logits, const Sampling& sampling, double draw);

}  // namespace athanor::inline model
