#pragma once
// Scores batches of sequences with a model, on the ranks of any layout.
//
// Data ranks take the batches in turns; the ranks that share a data rank's work compute each batch together. Which
// batches there are does not depend on the ranks, and each is computed by itself, so that one data rank and eight give
// the same bits.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "eval/token_forest.h"
#include "model/model_state.h"

namespace athanor::inline eval {

struct SequenceScore {
  double log_likelihood = 0;  ///< natural logarithm, over the scored tokens
  bool is_greedy = false;     ///< greedy decoding would have chosen each of them
};

/// The batches of one call.
struct ForestBatches {
  std::vector<TokenForest> batches;  ///< as pack_sequences makes them
  int64_t num_sequences = 0;         ///< how many sequences they have together
};

/// Returns the scores of the sequences, by their index, on every rank. Collective over the model's mesh; the model
/// stays as it is.
/// @param given  read on the first rank only; null there: there are no more.
/// @param multiple_of  the same on all ranks: each batch is filled up to such a number of tokens by ones that no one
///        scores. Under parallelism.sequence_parallel it is the number of tensor ranks, which share the tokens evenly.
/// @return nothing on every rank if there are no more.
std::optional<std::vector<SequenceScore>> score_forests(ModelState& model, const ForestBatches* given,
                                                        int64_t multiple_of = 1);

/// Returns a batch as numbers, and the batch that such numbers are.
void append_numbers(const TokenForest& batch, std::vector<int64_t>& numbers);
TokenForest take_forest(std::span<const int64_t>& numbers);

}  // namespace athanor::inline eval
