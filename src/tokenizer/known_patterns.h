#pragma once
// Patterns of published tokenizers with hand-written scanners, some twenty times as fast as a regex engine.

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

}  // namespace athanor::inline tokenizer
