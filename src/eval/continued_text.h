#pragma once
// The text that new tokens add to a prompt, as it comes. This header needs no libtorch.

#include <cstdint>
#include <span>
#include <string>

#include "tokenizer/tokenizer.h"

namespace athanor::inline eval {

/// Decodes prompt and new tokens together and shows what is behind the prompt's own text: decoding the new tokens alone
/// would lose what depends on the tokens before them, as the space before the first word in many tokenizers. Of a
/// character whose first bytes are in the prompt, all is shown.
class ContinuedText {
 public:
  ContinuedText(const Tokenizer& tokenizer, std::span<const uint32_t> prompt_ids);

  /// Returns the text that `id` completed.
  std::string push(uint32_t id) { return behind_prompt(decoder_.push(id)); }
  std::string finish() { return behind_prompt(decoder_.finish()); }

 private:
  std::string behind_prompt(std::string piece);

  StreamDecoder decoder_;
  std::string of_prompt_;  // text of the prompt that the decoder has not returned yet
};

}  // namespace athanor::inline eval
