#pragma once
// Pre-tokenizers that examine one character at a time: Digits, Punctuation, Whitespace and similar ones.

#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/pre_tokenizer.h"

namespace athanor::inline tokenizer {

inline constexpr std::string_view kCharacterSplitKinds =
    "Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer, FixedLength";

/// Returns the splitter of kind `type`, or null if it is none of these.
/// @throws DataError by JSON path.
std::shared_ptr<const Splitter> parse_character_split(const std::string& type, const JsonNode& node);

}  // namespace athanor::inline tokenizer
