#include "tokenizer/decoder.h"

#include <algorithm>

#include "tokenizer/byte_level.h"
#include "tokenizer/file_limits.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

// Real files nest sequences one or two deep; a thousand would be an attack on the stack.

void append_steps(const JsonNode& node, int depth, std::vector<DecodeStepMaker>& steps, bool& only_bytes) {
  if (depth > kMaxNesting) node.complain("sequences are nested deeper than {}", kMaxNesting);
  const std::string type = node.at("type").as_string();
  if (type == "Sequence") {
    for (const auto& part : node.at("decoders").elements()) append_steps(part, depth + 1, steps, only_bytes);
    return;
  }
  if (steps.size() == kMaxSteps) node.complain("more than {} decoders", kMaxSteps);
  auto step = parse_decode_step(type, node);
  if (!step) node.at("type").complain("the decoder \"{}\" is not supported; {} are", type, kDecoderKinds);
  only_bytes = steps.empty() && type == "ByteLevel";
  steps.push_back(std::move(step));
}

// The end of the chain.
class Collect : public DecodeStep {
 public:
  void push(TokenPart part) override { text_ += part.text; }
  void finish() override {}
  std::string take() { return std::exchange(text_, {}); }

 private:
  std::string text_;
};

}  // namespace

// Holds back bytes that could still become a character.
class TokenDecoder::ByteStream : public DecodeStream {
 public:
  ByteStream(const TokenDecoder& decoder, bool skip_special_tokens)
      : decoder_(decoder), skip_special_tokens_(skip_special_tokens) {}

  std::string push(uint32_t id) override {
    decoder_.append(id, skip_special_tokens_, first_, pending_);
    const size_t certain = pending_.size() - unfinished_utf8_suffix(pending_);
    std::string text;
    append_utf8_lossy(text, std::string_view(pending_).substr(0, certain));
    pending_.erase(0, certain);
    return text;
  }

  std::string finish() override {
    std::string text;
    append_utf8_lossy(text, pending_);
    pending_.clear();
    return text;
  }

 private:
  const TokenDecoder& decoder_;
  bool skip_special_tokens_, first_ = true;
  std::string pending_;
};

class TokenDecoder::StepStream : public DecodeStream {
 public:
  StepStream(const TokenDecoder& decoder, bool skip_special_tokens)
      : decoder_(decoder), skip_special_tokens_(skip_special_tokens) {
    for (const auto& make : decoder.steps_) steps_.push_back(make());
    for (size_t i = 0; i < steps_.size(); ++i) {
      steps_[i]->set_next(i + 1 < steps_.size() ? *steps_[i + 1] : collected_);
    }
  }

  void add(uint32_t id) {
    if (!decoder_.is_left_out(id, skip_special_tokens_)) steps_.front()->push({decoder_.tokens_[id].text});
  }
  std::string push(uint32_t id) override {
    add(id);
    return collected_.take();
  }
  std::string finish() override {
    steps_.front()->finish();
    return collected_.take();
  }

 private:
  const TokenDecoder& decoder_;
  bool skip_special_tokens_;
  std::vector<std::unique_ptr<DecodeStep>> steps_;
  Collect collected_;
};

TokenDecoder::TokenDecoder(const std::optional<JsonNode>& node, const Bpe& model, const std::vector<AddedToken>& added)
    : separated_(!node) {
  bool only_bytes = false;
  if (node) append_steps(*node, 0, steps_, only_bytes);
  if (only_bytes) steps_.clear();
  // A token with a character outside the alphabet (an added token with a space, for example) represents its own text.
  const auto text_of = [&](const std::string& token) {
    return only_bytes ? bytes_from_alphabet(token).value_or(token) : token;
  };
  size_t size = model.tokens().size();
  for (const auto& token : added) size = std::max<size_t>(size, token.id + size_t{1});
  tokens_.resize(size);
  for (size_t id = 0; id < model.tokens().size(); ++id) {
    const auto& token = model.tokens()[id];
    tokens_[id] = {text_of(token), model.token_to_id(token) == id, false};
  }
  // The text of a token decides if it is special, so a normalised token can cease to be special; `tokenizers` does the
  // same.
  const auto is_special = [&](const std::string& text) {
    return std::any_of(added.begin(), added.end(), [&](const auto& t) { return t.special && t.content == text; });
  };
  for (const auto& token : added) {
    const bool special = token.text == token.content ? token.special : is_special(token.text);
    tokens_[token.id] = {text_of(token.text), true, special};
  }
}

void TokenDecoder::append(uint32_t id, bool skip_special_tokens, bool& first, std::string& bytes) const {
  if (is_left_out(id, skip_special_tokens)) return;
  if (separated_ && !first) bytes += ' ';
  bytes += tokens_[id].text;
  first = false;
}

std::string TokenDecoder::decode(std::span<const uint32_t> ids, bool skip_special_tokens) const {
  if (!steps_.empty()) {
    StepStream stream(*this, skip_special_tokens);
    for (const uint32_t id : ids) stream.add(id);
    return stream.finish();
  }
  std::string bytes, text;
  bool first = true;
  for (const uint32_t id : ids) append(id, skip_special_tokens, first, bytes);
  append_utf8_lossy(text, bytes);
  return text;
}

std::unique_ptr<DecodeStream> TokenDecoder::stream(bool skip_special_tokens) const {
  if (!steps_.empty()) return std::make_unique<StepStream>(*this, skip_special_tokens);
  return std::make_unique<ByteStream>(*this, skip_special_tokens);
}

}  // namespace athanor::inline tokenizer
