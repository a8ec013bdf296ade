#pragma once
// Trains a byte-level BPE vocabulary: joins the most frequent pair of tokens, one pair after another.
//
// The result equals that of `tokenizers`' BpeTrainer on the same words, merge for merge, so that each can check the
// other. Sources: Sennrich et al., ACL 2016; the words and bytes are GPT-2's.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace athanor::inline tokenizer {

struct BpeTraining {
  uint32_t vocab_size = 0;  // special tokens included; the result has fewer if the text has too few pairs
  std::vector<std::string> special_tokens{"<|endoftext|>"};  // they get the first ids, in this order
  uint64_t min_frequency = 2;                                // pairs that occur less often are not joined
};

/// Checks the options.
/// @throws ConfigError if the vocabulary is too small for the 256 bytes and the special tokens. And if a special
///         token is empty, repeated, not UTF-8 or the name of a byte.
void check_bpe_training(const BpeTraining& training);

/// Counts of each word of GPT-2's pattern in the texts added.
class WordCounts {
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  using Map = std::unordered_map<std::string, uint64_t, Hash, std::equal_to<>>;

 public:
  /// @throws DataError naming the first byte that is not UTF-8.
  void add(std::string_view utf8);
  size_t num_words() const { return counts_.size(); }
  const Map& counts() const { return counts_; }

 private:
  Map counts_;
};

/// Trains the vocabulary and returns the text of its tokenizer.json. The result depends only on the counts and
/// `training`: the pair with the highest count goes first, and of equal counts the pair with the lower ids.
/// @throws ConfigError as check_bpe_training.
std::string train_bpe(const WordCounts& words, const BpeTraining& training);

}  // namespace athanor::inline tokenizer
