#pragma once
// The pre-tokenizer "Split": cuts at the matches of a pattern, and says what becomes of them.

#include <memory>

#include "data/tokenizer/pre_tokenizer.h"

namespace athanor {

/// `plain`: by the regex engine, whatever the pattern; the oracle of the fast ways.
/// @throws DataError by JSON path: an unknown behavior, a pattern that is not supported.
std::shared_ptr<const Splitter> parse_split_rule(const JsonNode& node, bool plain);

}  // namespace athanor
