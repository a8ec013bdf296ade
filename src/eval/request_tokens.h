#pragma once
// Requests of tasks as tokens, as lm_eval 0.4.13 makes them (TemplateLM and HFLM there): context and continuation are
// encoded together, a text that is too long loses its first tokens, and a text begins with what the model's tokenizer
// puts there.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/text_beginning.h"
#include "tasks/task_document.h"
#include "tokenizer/tokenizer.h"

namespace athanor::inline eval {

/// A sequence of tokens, of which the last ones are scored, each given those before it.
struct TokenRequest {
  std::vector<int32_t> tokens;
  int64_t num_scored = 0;     ///< at least 1 and less than tokens.size()
  int64_t num_truncated = 0;  ///< tokens of the context that were left out at its beginning
};

class RequestEncoder {
 public:
  /// @param tokenizer   must outlive this.
  /// @param max_length  the most tokens that the model reads: its positions.
  /// @param name        names the tokenizer in messages.
  /// @throws DataError if no token is known that stands for an empty context.
  RequestEncoder(const Tokenizer& tokenizer, TextBeginning beginning, int64_t max_length, const std::string& name);

  /// Returns the sequences that together answer a request: one, or for a rolling text as many as it has windows, whose
  /// log-likelihoods add up; none for an empty rolling text.
  /// @param stride  for a rolling text: tokens that each window after the first scores, so that each of them is given
  ///        at least max_length − stride others; 0: as many as fit (lm_eval's rolling form).
  /// @throws DataError if the continuation has no tokens, or more than the model reads.
  std::vector<TokenRequest> encode(const tasks::TextRequest& request, int64_t stride = 0) const;

  uint32_t prefix() const { return prefix_; }  ///< the token that stands for an empty context
  int64_t max_length() const { return max_length_; }

 private:
  std::vector<int32_t> encode_text(std::string_view text, bool with_special_tokens) const;
  TokenRequest fit(std::vector<int32_t> context, std::vector<int32_t> continuation) const;
  std::vector<TokenRequest> windows(const std::vector<int32_t>& text, int64_t stride) const;

  const Tokenizer& tokenizer_;
  TextTemplate around_;
  uint32_t prefix_ = 0;
  int64_t max_length_;
};

}  // namespace athanor::inline eval
