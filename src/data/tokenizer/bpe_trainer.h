#pragma once
// Training of a byte-level BPE vocabulary: which pairs of tokens occur most often, joined one after the other.
//
// The result is that of `tokenizers`' BpeTrainer on the same words, merge for merge, so that either can check the
// other. Sennrich et al., ACL 2016; GPT-2's words and bytes.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace athanor {

struct BpeTraining {
  uint32_t vocab_size = 0;  // special tokens included; the result has fewer if the text has too few pairs
  std::vector<std::string> special_tokens{"<|endoftext|>"};  // they get the first ids, in this order
  uint64_t min_frequency = 2;                                // pairs that occur less often are not joined
};

/// @throws ConfigError: a vocabulary too small for the 256 bytes and the special tokens, a special token that is empty,
///         repeated, not UTF-8 or the name of a byte.
void check_bpe_training(const BpeTraining& training);

/// How often each word of GPT-2's pattern occurs in the texts added.
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

/// The text of a tokenizer.json. Depends on nothing but the counts and `training`: the highest count goes first, of
/// equal ones the pair with the lower ids.
std::string train_bpe(const WordCounts& words, const BpeTraining& training);

}  // namespace athanor
