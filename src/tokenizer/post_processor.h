#pragma once
// The post-processor of a tokenizer.json: it determines the special tokens around a text. Documents are encoded without
// them; a user who wants to see a text as a chat or an embedding model does asks for them.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor {

/// The ids before and after those of a single sequence.
struct SequenceTemplate {
  std::vector<uint32_t> before, after;

  /// Returns `before`, `ids` and `after` as one list.
  std::vector<uint32_t> around(std::span<const uint32_t> ids) const;
};

/// Reads the post-processor from the text of a tokenizer.json. It knows TemplateProcessing, RobertaProcessing,
/// BertProcessing, ByteLevel (which adds nothing), Sequence and null; a missing one adds nothing.
/// @throws DataError by JSON path: a kind that is not known, a template that repeats its sequence or lacks it.
SequenceTemplate read_sequence_template(std::string_view tokenizer_json, const std::string& name_for_errors);

}  // namespace athanor
