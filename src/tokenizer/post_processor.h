#pragma once
// The post-processor of a tokenizer.json: it determines the special tokens around a text. Documents are encoded without
// them; a user who wants to see a text as a chat or an embedding model does asks for them.

#include <string>
#include <string_view>

#include "base/text_template.h"

namespace athanor::inline tokenizer {

/// Reads the post-processor from the text of a tokenizer.json. It knows TemplateProcessing, RobertaProcessing,
/// BertProcessing, ByteLevel (which adds nothing), Sequence and null; a missing one adds nothing.
/// @throws DataError by JSON path: a kind that is not known, a template that repeats its sequence or lacks it.
TextTemplate read_text_template(std::string_view tokenizer_json, const std::string& name_for_errors);

}  // namespace athanor::inline tokenizer
