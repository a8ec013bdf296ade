#pragma once
// Packs sequences of tokens into batches of bounded size, in which a common beginning of sequences is there once
// (ops/tree_attention.h). Nothing is padded, and the questions of a task with the same few-shot examples cost the
// examples once for each batch.

#include <cstdint>
#include <span>
#include <vector>

#include "ops/tree_attention.h"

namespace athanor::inline eval {

/// A sequence to score: its last `num_scored` tokens, each given all before it. The model reads all but the last token.
struct ScoredSequence {
  std::span<const int32_t> tokens;
  int64_t num_scored = 0;  ///< at least 1 and less than tokens.size()
};

/// A batch of sequences; numbers only, so that it can be sent.
struct TokenForest {
  std::vector<int32_t> tokens;              ///< N tokens that the model reads
  std::vector<ops::TokenTree::Node> nodes;  ///< the N tokens as a forest
  std::vector<int32_t> rows, targets;       ///< S predictions: after token rows[i], targets[i] is expected
  struct Member {
    int64_t sequence;  ///< its index in the call
    int64_t begin;     ///< its first prediction; it has ScoredSequence::num_scored, one after another
    int64_t count;
  };
  std::vector<Member> members;
};

/// Returns batches of at most `token_budget` tokens each (a longer sequence is alone in one), which together have every
/// sequence once. They depend on the arguments alone.
std::vector<TokenForest> pack_sequences(std::span<const ScoredSequence> sequences, int64_t token_budget);

}  // namespace athanor::inline eval
