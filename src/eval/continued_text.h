#pragma once
// The text that new tokens add to a prompt, as it comes, up to the first stop string. This header needs no libtorch.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// Passes a text on, piece by piece, up to a stop string.
///
/// If there are several stop strings, the one that is complete first ends the text; if some are complete with the same
/// byte, the longest. So the result does not depend on how the text is cut into pieces. Bytes that may begin a stop
/// string are held back until it is certain that they do not.
class StopFilter {
 public:
  /// @param stops  none of them empty.
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Adds a piece and returns the text that may be shown now; nothing more once a stop string was found.
  std::string push(std::string_view piece);
  /// The text ends without a stop string: returns what was held back.
  std::string finish();

  /// The stop string that has ended the text.
  const std::optional<std::string>& found() const { return found_; }

 private:
  const std::string* stop_at(size_t end) const;
  size_t held_bytes() const;

  std::vector<std::string> stops_;
  std::string held_;
  std::optional<std::string> found_;
};

}  // namespace athanor::inline eval
