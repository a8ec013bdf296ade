#pragma once
// A small tokenizer.json for tests: the 256 bytes by value, then what a test adds.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tokenizer/byte_level.h"

namespace athanor::inline tokenizer {

/// Ids 0-255 are the bytes. `words` are spelled in the byte-level alphabet ("Ġthe"); each gets ids for its prefixes,
/// and merges that extend it from the left.
inline nlohmann::json byte_tokenizer_json(const std::vector<std::string>& words = {}) {
  nlohmann::json vocab, merges = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte) vocab[alphabet_from_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  for (const auto& word : words) {
    const auto bytes = bytes_from_alphabet(word).value();
    for (size_t end = 2; end <= bytes.size(); ++end) {
      const auto token = alphabet_from_bytes(bytes.substr(0, end));
      if (vocab.contains(token)) continue;
      vocab[token] = vocab.size();
      merges.push_back(alphabet_from_bytes(bytes.substr(0, end - 1)) + " " +
                       alphabet_from_bytes(bytes.substr(end - 1, 1)));
    }
  }
  const nlohmann::json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return {{"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

inline nlohmann::json added_token_json(uint32_t id, const std::string& content, bool special = true) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

}  // namespace athanor::inline tokenizer
