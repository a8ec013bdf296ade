#pragma once
// Patterns of published tokenizers with hand-written scanners, some twenty times as fast as a regex engine.

#include <cstddef>
#include <span>
#include <string_view>

#include "tokenizer/pre_tokenizer.h"

namespace athanor::inline tokenizer {

struct KnownPattern {
  std::string_view name, pattern;
  /// Passes the matches of the pattern and the gaps between them to the sink, in order and none of them empty.
  void (*cut)(std::string_view text, WordSink sink);
  bool leaves_gaps;  ///< true if the pattern leaves some text unmatched
};

/// Returns the pattern with exactly this text, or nullptr.
const KnownPattern* find_known_pattern(std::string_view pattern);

/// Returns all known patterns, for tests.
std::span<const KnownPattern> known_patterns();

/// The pattern of GPT-2, which gpt2_word_end implements.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Returns the end of the word that begins at `begin`. `text` is well-formed UTF-8 and `begin` < text.size().
size_t gpt2_word_end(std::string_view text, size_t begin);

}  // namespace athanor::inline tokenizer
