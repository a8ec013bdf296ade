// A tokenizer.json: added tokens → normalizer → added tokens → pre-tokenizer → BPE, and back.

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/bounded_json.h"
#include "base/error.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_backend.h"
#include "tokenizer/unicode.h"

namespace athanor::inline tokenizer {
namespace {

struct Scratch {
  RegexScratch regex;
  Bpe::Scratch bpe;
  Normalizer::Scratch normalizer;
};

// Lends one scratch to each working thread; the pool keeps as many as ever worked at the same time.
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

class JsonTokenizer : public TokenizerBackend {
 public:
  JsonTokenizer(std::string text, const JsonNode& root, bool plain)
      : json_(std::move(text)), normalizer_(Normalizer::parse(root.find("normalizer"))),
        pre_tokenizer_(PreTokenizer::parse(root.find("pre_tokenizer"), plain)),
        model_(Bpe::parse(root.at("model"), pre_tokenizer_.words(), plain)),
        added_(root.find("added_tokens"), model_, normalizer_),
        decoder_(root.find("decoder"), model_, added_.tokens()) {}

  void encode(std::string_view text, SpecialText special, std::vector<uint32_t>& out) const override {
    ScratchPool::Loan scratch(scratch_pool_);
    auto on_word = [&](std::string_view word) { model_.encode(word, (*scratch).bpe, out); };
    cut(text, special, *scratch, on_word, [&](uint32_t id) { out.push_back(id); });
  }

  size_t count_words(std::string_view text) const override {
    ScratchPool::Loan scratch(scratch_pool_);
    size_t count = 0;
    auto on_word = [&](std::string_view) { ++count; };
    cut(text, SpecialText::kIsToken, *scratch, on_word, [](uint32_t) {});
    return count;
  }

  std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens) const override {
    return decoder_.decode(ids, skip_special_tokens);
  }

  std::unique_ptr<DecodeStream> stream(bool skip_special_tokens) const override {
    return decoder_.stream(skip_special_tokens);
  }

  uint32_t vocab_size() const override { return decoder_.vocab_size(); }

  std::optional<uint32_t> token_to_id(std::string_view token) const override {
    for (const auto& added : added_.tokens()) {
      if (added.content == token) return added.id;
    }
    return model_.token_to_id(token);
  }

  std::vector<uint32_t> special_ids() const override {
    std::vector<uint32_t> ids;
    for (const auto& token : added_.tokens()) {
      if (token.special) ids.push_back(token.id);
    }
    std::ranges::sort(ids);
    return ids;
  }

  const char* file_name() const override { return "tokenizer.json"; }
  const std::string& file_bytes() const override { return json_; }

 private:
  // Passes the text that the model encodes to `on_word`, and tokens that are found already to `on_token`, in order.
  template <class OnToken>
  void cut(std::string_view text, SpecialText special, Scratch& scratch, WordSink on_word, OnToken on_token) const {
    const auto on_raw_text = [&](std::string_view piece) {
      const size_t num_first = piece.data() == text.data() ? num_first_bytes(text, scratch) : 0;
      const auto normalized = normalizer_.apply(piece, scratch.regex, scratch.normalizer);
      const auto on_text = [&](std::string_view part) {
        const auto at = static_cast<size_t>(part.data() - normalized.data());
        pre_tokenizer_.split(part, at < num_first ? num_first - at : 0, scratch.regex, on_word);
      };
      added_.normalized(special).split(normalized, on_text, on_token);
    };
    added_.raw(special).split(text, on_raw_text, on_token);
  }

  // Returns the length of the first character after normalisation; that is what "first" means to the pre-tokenizer,
  // too.
  size_t num_first_bytes(std::string_view text, Scratch& scratch) const {
    if (text.empty()) return 0;
    const auto first = text.substr(0, decode_utf8(text.data()).num_bytes);
    return normalizer_.apply(first, scratch.regex, scratch.normalizer).size();
  }

  std::string json_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Bpe model_;
  AddedTokens added_;
  TokenDecoder decoder_;
  mutable ScratchPool scratch_pool_;
};

}  // namespace

std::shared_ptr<const TokenizerBackend> make_json_tokenizer(std::string_view json, const std::string& name_for_errors,
                                                            bool plain, const CompanionFiles& companions) {
  auto document = parse_json(json, name_for_errors);
  const bool changed = add_companion_tokens(companions, document, name_for_errors);
  return std::make_shared<JsonTokenizer>(changed ? document.dump() : std::string(json),
                                         JsonNode(document, name_for_errors), plain);
}

}  // namespace athanor::inline tokenizer
