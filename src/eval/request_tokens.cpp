#include "eval/request_tokens.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tasks/python_text.h"

namespace athanor::inline eval {
namespace {

std::vector<int32_t> last(const std::vector<int32_t>& tokens, int64_t count) {
  return {tokens.end() - std::min<int64_t>(std::ssize(tokens), count), tokens.end()};
}

}  // namespace

RequestEncoder::RequestEncoder(const Tokenizer& tokenizer, TextBeginning beginning, int64_t max_length,
                               const std::string& name)
    : tokenizer_(tokenizer), around_(std::move(beginning.around)), max_length_(max_length) {
  ATHANOR_CHECK_DATA(beginning.prefix,
                     "{} does not tell which token begins or ends a text, which an empty context needs; name it as "
                     "eos_token in a tokenizer_config.json next to it",
                     name);
  prefix_ = *beginning.prefix;
}

std::vector<int32_t> RequestEncoder::encode_text(std::string_view text, bool with_special_tokens) const {
  const auto ids = encode_in_template(tokenizer_, with_special_tokens ? around_ : TextTemplate(), text);
  return {ids.begin(), ids.end()};
}

// The model reads all tokens but the last.
TokenRequest RequestEncoder::fit(std::vector<int32_t> context, std::vector<int32_t> continuation) const {
  ATHANOR_CHECK_DATA(!continuation.empty(),
                     "its continuation adds no tokens, since they merge with the last ones of its context; "
                     "separate the two by a space or a line break (target_delimiter)");
  ATHANOR_CHECK_DATA(std::ssize(continuation) <= max_length_,
                     "its continuation has {} tokens, and the model reads at most {}", continuation.size(),
                     max_length_);
  TokenRequest request;
  request.num_scored = std::ssize(continuation);
  request.tokens = std::move(context);
  request.tokens.insert(request.tokens.end(), continuation.begin(), continuation.end());
  request.num_truncated = std::max<int64_t>(0, std::ssize(request.tokens) - (max_length_ + 1));
  if (request.num_truncated > 0) request.tokens = last(request.tokens, max_length_ + 1);
  return request;
}

std::vector<TokenRequest> RequestEncoder::windows(const std::vector<int32_t>& text, int64_t stride) const {
  const int64_t total = std::ssize(text), step = stride == 0 ? max_length_ : std::min(stride, max_length_);
  std::vector<TokenRequest> result;
  for (int64_t end = 0, begin = 0; end < total; begin = end) {
    end = std::min(total, begin == 0 ? max_length_ : begin + step);
    TokenRequest window;
    window.num_scored = end - begin;
    if (begin == 0) window.tokens.push_back(static_cast<int32_t>(prefix_));
    window.tokens.insert(window.tokens.end(),
                         text.begin() + std::max<int64_t>(0, begin == 0 ? 0 : end - max_length_ - 1),
                         text.begin() + end);
    result.push_back(std::move(window));
  }
  return result;
}

std::vector<TokenRequest> RequestEncoder::encode(const tasks::TextRequest& request, int64_t stride) const {
  if (request.rolling) return windows(encode_text(request.continuation, true), stride);
  if (request.context.empty()) {
    std::vector<int32_t> continuation = encode_text(request.continuation, false);
    std::vector<int32_t> context = {static_cast<int32_t>(prefix_)};
    if (!continuation.empty() && continuation.front() == context.front()) continuation.erase(continuation.begin());
    return {fit(std::move(context), std::move(continuation))};
  }
  // Spaces at the end of the context belong to the first word of the continuation.
  const std::string_view context = tasks::strip(request.context, tasks::Side::kRight);
  const std::vector<int32_t> whole = encode_text(request.context + request.continuation, true);
  std::vector<int32_t> before = encode_text(context, true);
  std::vector<int32_t> after(whole.begin() + std::min(std::ssize(before), std::ssize(whole)), whole.end());
  if (before.empty()) before.push_back(static_cast<int32_t>(prefix_));  // only spaces, where lm_eval stops
  return {fit(std::move(before), std::move(after))};
}

}  // namespace athanor::inline eval
