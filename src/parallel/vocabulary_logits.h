#pragma once
// Logits of a vocabulary whose rows tensor ranks share (vocabulary.h), gathered: for the few tokens after which a text
// is continued. Training and scoring never gather them.

#include "parallel/tensor_parallel.h"

namespace athanor::inline parallel {

/// x [R, D] → logits [R, V] in the compute type, equal on all ranks, without autograd. Collective over the group: an
/// all-gather of R times the largest number of rows that a rank holds. Waits, as Pending::wait.
/// @param weight  the rank's rows.
Tensor vocabulary_logits(const Tensor& x, const Weight& weight, int64_t vocab_size, const TensorRanks& ranks);

}  // namespace athanor::inline parallel
