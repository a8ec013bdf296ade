#pragma once
// Writes a byte-level BPE vocabulary as a tokenizer.json.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace athanor {

struct BpeVocabulary {
  std::vector<std::string> tokens;  // by id, in the byte-level alphabet; special tokens first
  std::vector<std::string> special_tokens;
  std::vector<std::pair<uint32_t, uint32_t>> merges;  // by rank
};

/// GPT-2's words, no normalizer, so that decoding gives back every text; loads in `tokenizers` and `transformers`.
std::string tokenizer_json(const BpeVocabulary& vocabulary);

/// The same around the two long parts, which are JSON already: the object `vocab` and the array `merges`.
/// @param special_tokens  id and text of each.
std::string gpt2_kind_of_json(const std::vector<std::pair<uint32_t, std::string>>& special_tokens,
                              const std::string& vocab, const std::string& merges);

}  // namespace athanor
