#pragma once
// Patterns of published tokenizers that are cut by hand, some twenty times as fast as a regex engine does it.

#include <span>
#include <string_view>

#include "data/tokenizer/pre_tokenizer.h"

namespace athanor {

struct KnownPattern {
  std::string_view name, pattern;
  /// Hands the matches of the pattern and the gaps between them to the sink, in order and none of them empty.
  void (*cut)(std::string_view text, WordSink sink);
  bool leaves_gaps;  ///< there is text that it does not match
};

/// The pattern with exactly this text, or nullptr.
const KnownPattern* find_known_pattern(std::string_view pattern);

/// For tests.
std::span<const KnownPattern> known_patterns();

}  // namespace athanor
