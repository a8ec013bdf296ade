#pragma once
// What stands around a text that a model reads: for a run what its data have, for a folder from elsewhere what its
// tokenizer asks for.

#include <cstdint>
#include <optional>
#include <string>

#include "base/text_template.h"
#include "eval/loaded_model.h"

namespace athanor::inline eval {

struct TextBeginning {
  TextTemplate around;
  std::optional<uint32_t> prefix;  ///< stands before a text that has no token before it; none if none is known
};

/// @param around  what the training data have. @param eos_id  the token after each document.
TextBeginning beginning_in_training(TextTemplate around, uint32_t eos_id);

/// Only where the model has its tokenizer.
/// @throws DataError if the tokenizer has a post-processor that is not known.
TextBeginning beginning_of_texts(const LoadedModel& model);

/// Tells, in the log, which tokens texts begin with and why, if there is something to tell.
void tell_beginning(const LoadedModel& model, const TextTemplate& around);

/// Returns the ids of a text with the template around it. A text that begins with the text of the template's first
/// token has it already, and gets nothing more (as in lm_eval 0.4.13).
std::vector<uint32_t> encode_in_template(const Tokenizer& tokenizer, const TextTemplate& around, std::string_view text);

}  // namespace athanor::inline eval
