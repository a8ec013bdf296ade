#pragma once
// The kinds of normalizer that are supported.

#include <memory>
#include <string>
#include <string_view>

#include "base/json_node.h"
#include "tokenizer/normalizer.h"

namespace athanor::inline tokenizer {

inline constexpr std::string_view kNormalizerKinds =
    "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, ByteLevel, Nmt, BertNormalizer, Sequence "
    "and null";

/// Returns the step of kind `type` (not Sequence), or null if the kind is not known.
/// @throws DataError by JSON path.
std::shared_ptr<const NormalizerStep> parse_normalizer_step(const std::string& type, const JsonNode& node);

/// Parses BertNormalizer, BERT's basic cleaning of text.
std::shared_ptr<const NormalizerStep> parse_bert_normalizer(const JsonNode& node);

/// Appends the lower case of every character.
void append_lowercase(std::string& out, std::string_view text);

}  // namespace athanor::inline tokenizer
