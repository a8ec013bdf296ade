#pragma once
// Draws a label for each row of logits from their softmax, for optimizers that learn from the model's own labels.
//
// The Gumbel-max form: the label is the id with the largest logit − log(E), where the E are independent exponential
// numbers, functions of a counter. So it depends neither on how the vocabulary is cut nor on sums of exponentials: a
// rounding of the logits changes a label only if the two largest values lie within it. (With the inverse of the
// cumulative distribution, each of the vocabulary's boundaries would be such a place.)

#include <cstdint>

#include "kernels/element.h"

namespace athanor::kernels {

/// Returns 64 bits for a counter: SplitMix64 (Steele et al. 2014), which is a function of key + index · odd constant.
/// The counter's generator of base/random.h has no form in torch ops, which other devices need.
ATHANOR_INLINE uint64_t draw_bits(uint64_t key, uint64_t index) {
  uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

struct DrawRows {
  int64_t rows = 0, width = 0;  ///< logits [rows, width]
  int64_t first_row = 0;        ///< the number of the first row in the step
  int64_t first_id = 0;         ///< the id of the first column
  int64_t vocab_size = 0;       ///< size of the whole vocabulary: number v of row r has counter r · vocab_size + v
  uint64_t key = 0;
};

/// Writes the largest value of each row and its id, of this range of ids; −∞ and the first id if the width is 0.
/// @param targets  a row with kNoTarget (cross_entropy.h) draws nothing: −∞ and kNoTarget.
template <class T>
void draw_labels(const DrawRows& draw, const T* logits, const int64_t* targets, float* largest, int64_t* ids);

}  // namespace athanor::kernels
