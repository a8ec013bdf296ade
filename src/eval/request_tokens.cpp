#include "eval/request_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "tasks/python_text.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json read_settings(const fs::path& file) {
  if (!fs::exists(file)) return Json::object();
  const Json settings = Json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  ATHANOR_CHECK_DATA(settings.is_object(), "{} is no JSON object", file.string());
  return settings;
}

// A token is named by its text, or by an object with it.
std::optional<uint32_t> token_named(const Tokenizer& tokenizer, const Json& settings, const char* key) {
  const auto found = settings.find(key);
  if (found == settings.end()) return std::nullopt;
  if (found->is_string()) return tokenizer.token_to_id(found->get<std::string>());
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string())
    return tokenizer.token_to_id((*found)["content"].get<std::string>());
  return std::nullopt;
}

std::optional<uint32_t> find_token(const Tokenizer& tokenizer, const fs::path& folder, const char* key) {
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    if (const auto id = token_named(tokenizer, read_settings(folder / file), key)) return id;
  }
  return std::nullopt;
}

// A SentencePiece model has no post-processor; its settings tell which tokens stand around a text.
void add_asked_tokens(const Tokenizer& tokenizer, const Json& settings, SequenceTemplate& around) {
  const auto add = [&](const char* asked, const char* token, std::vector<uint32_t>& to) {
    if (!settings.contains(asked) || settings[asked] != true) return;
    if (const auto id = token_named(tokenizer, settings, token)) to.push_back(*id);
  };
  add("add_bos_token", "bos_token", around.before);
  add("add_eos_token", "eos_token", around.after);
}

std::vector<int32_t> last(const std::vector<int32_t>& tokens, int64_t count) {
  return {tokens.end() - std::min<int64_t>(std::ssize(tokens), count), tokens.end()};
}

}  // namespace

RequestEncoder::RequestEncoder(const Tokenizer& tokenizer, const fs::path& tokenizer_file,
                               std::optional<uint32_t> eos_id, int64_t max_length)
    : tokenizer_(tokenizer), max_length_(max_length) {
  const fs::path folder = tokenizer_file.parent_path();
  if (tokenizer.file_name().ends_with(".json"))
    around_ = read_sequence_template(tokenizer.file_bytes(), tokenizer_file.string());
  else
    add_asked_tokens(tokenizer, read_settings(folder / "tokenizer_config.json"), around_);
  auto prefix = find_token(tokenizer, folder, "bos_token");
  if (!prefix) prefix = find_token(tokenizer, folder, "eos_token");
  if (!prefix) prefix = eos_id;
  if (!prefix) prefix = tokenizer.eos_id();
  ATHANOR_CHECK_DATA(prefix,
                     "{} does not tell which token begins or ends a text, which an empty context needs; name it as "
                     "eos_token in a tokenizer_config.json next to it",
                     tokenizer_file.string());
  prefix_ = *prefix;
  prefix_text_ = tokenizer.decode(std::vector<uint32_t>{prefix_});
}

std::vector<int32_t> RequestEncoder::encode_text(std::string_view text, bool with_special_tokens) const {
  std::vector<uint32_t> ids = tokenizer_.encode(text);
  const bool has_them = !prefix_text_.empty() && text.starts_with(prefix_text_);
  if (with_special_tokens && !has_them) ids = around_.around(ids);
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

}  // namespace athanor
