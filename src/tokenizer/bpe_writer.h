#pragma once
// Writes a byte-level BPE vocabulary as a tokenizer.json.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace athanor::inline tokenizer {

struct BpeVocabulary {
  std::vector<std::string> tokens;  // by id, in the byte-level alphabet; special tokens come first
  std::vector<std::string> special_tokens;
  std::vector<std::pair<uint32_t, uint32_t>> merges;  // left and right id, by rank
};

/// Returns a tokenizer.json with GPT-2's pattern for words and without a normalizer, so that decoding restores every
/// text; `tokenizers` and `transformers` can load it.
std::string tokenizer_json(const BpeVocabulary& vocabulary);

/// Returns such a file from its two long parts, which are given as JSON: the object `vocab` and the array `merges`.
/// @param special_tokens  id and text of each special token.
std::string gpt2_kind_of_json(const std::vector<std::pair<uint32_t, std::string>>& special_tokens,
                              const std::string& vocab, const std::string& merges);

}  // namespace athanor::inline tokenizer
