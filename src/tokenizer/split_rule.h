#pragma once
// The pre-tokenizer "Split": it cuts at the matches of a pattern and has a rule for the matches themselves.

#include <memory>

#include "tokenizer/pre_tokenizer.h"

namespace athanor::inline tokenizer {

/// `plain` uses the regex engine for every pattern: the oracle of the fast paths.
/// @throws DataError by JSON path: an unknown behavior, a pattern that is not supported.
std::shared_ptr<const Splitter> parse_split_rule(const JsonNode& node, bool plain);

}  // namespace athanor::inline tokenizer
