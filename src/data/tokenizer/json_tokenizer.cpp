// A tokenizer.json: normalizer → added tokens → pre-tokenizer → BPE, and the way back.

#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/tokenizer_backend.h"
#include "data/tokenizer/unicode.h"

namespace athanor {
namespace {

struct Scratch {
  RegexScratch regex;
  Bpe::Scratch bpe;
  std::string normalized;
};

// Lends one scratch to each thread at work; as many stay as ever worked at once.
class ScratchPool {
 public:
  class Loan {
   public:
    explicit Loan(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
    ~Loan() { pool_.put_back(std::move(scratch_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    Scratch& operator*() { return *scratch_; }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

 private:
  std::unique_ptr<Scratch> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Scratch>();
    auto scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void put_back(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

Normalizer parse_normalizer(const JsonNode& root) {
  const auto node = root.find("normalizer");
  return node ? Normalizer::parse(*node) : Normalizer();
}

PreTokenizer parse_pre_tokenizer(const JsonNode& root) {
  const auto node = root.find("pre_tokenizer");
  if (!node) root.complain("pre_tokenizer is missing; only tokenizers that end in ByteLevel are supported");
  return PreTokenizer::parse(*node);
}

// Holds back bytes that could still become a character.
class ByteStream : public DecodeStream {
 public:
  ByteStream(const Decoder& decoder, bool skip_special_tokens)
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
  const Decoder& decoder_;
  bool skip_special_tokens_, first_ = true;
  std::string pending_;
};

class JsonTokenizer : public TokenizerBackend {
 public:
  JsonTokenizer(std::string_view text, const JsonNode& root)
      : json_(text), normalizer_(parse_normalizer(root)), pre_tokenizer_(parse_pre_tokenizer(root)),
        model_(Bpe::parse(root.at("model"))), added_(root.find("added_tokens"), model_, normalizer_),
        decoder_(root.find("decoder"), model_, added_.tokens()) {}

  void encode(std::string_view text, std::vector<uint32_t>& out) const override {
    ScratchPool::Loan loan(scratch_pool_);
    auto& scratch = *loan;
    const auto on_token = [&](uint32_t id) { out.push_back(id); };
    auto on_word = [&](std::string_view word) { model_.encode(word, scratch.bpe, out); };
    const auto on_text = [&](std::string_view piece) { pre_tokenizer_.split(piece, scratch.regex, on_word); };
    const auto on_raw_text = [&](std::string_view piece) {
      added_.normalized().split(normalizer_.apply(piece, scratch.normalized), scratch.regex, on_text, on_token);
    };
    added_.raw().split(text, scratch.regex, on_raw_text, on_token);
  }

  std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens) const override {
    std::string bytes, text;
    bool first = true;
    for (const uint32_t id : ids) decoder_.append(id, skip_special_tokens, first, bytes);
    append_utf8_lossy(text, bytes);
    return text;
  }

  std::unique_ptr<DecodeStream> stream(bool skip_special_tokens) const override {
    return std::make_unique<ByteStream>(decoder_, skip_special_tokens);
  }

  uint32_t vocab_size() const override { return decoder_.vocab_size(); }

  std::optional<uint32_t> token_to_id(std::string_view token) const override {
    for (const auto& added : added_.tokens()) {
      if (added.content == token) return added.id;
    }
    return model_.token_to_id(token);
  }

  const char* file_name() const override { return "tokenizer.json"; }
  const std::string& file_bytes() const override { return json_; }

 private:
  std::string json_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Bpe model_;
  AddedTokens added_;
  Decoder decoder_;
  mutable ScratchPool scratch_pool_;
};

}  // namespace

std::shared_ptr<const TokenizerBackend> make_json_tokenizer(std::string_view json, const std::string& name_for_errors) {
  const auto document = parse_json(json, name_for_errors);
  return std::make_shared<JsonTokenizer>(json, JsonNode(document, name_for_errors));
}

}  // namespace athanor
