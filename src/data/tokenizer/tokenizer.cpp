#include "data/tokenizer/tokenizer.h"

#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pre_tokenizer.h"
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

}  // namespace

struct Tokenizer::Impl {
  Impl(std::string_view text, const JsonNode& root)
      : json(text), hash(hash_hex(text)), normalizer(parse_normalizer(root)), pre_tokenizer(parse_pre_tokenizer(root)),
        model(Bpe::parse(root.at("model"))), added(root.find("added_tokens"), model, normalizer),
        decoder(root.find("decoder"), model, added.tokens()) {}

  void encode(std::string_view text, Scratch& scratch, std::vector<uint32_t>& out) const {
    const auto on_token = [&](uint32_t id) { out.push_back(id); };
    auto on_word = [&](std::string_view word) { model.encode(word, scratch.bpe, out); };
    const auto on_text = [&](std::string_view piece) { pre_tokenizer.split(piece, scratch.regex, on_word); };
    const auto on_raw_text = [&](std::string_view piece) {
      added.normalized().split(normalizer.apply(piece, scratch.normalized), scratch.regex, on_text, on_token);
    };
    added.raw().split(text, scratch.regex, on_raw_text, on_token);
  }

  std::string json, hash;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  AddedTokens added;
  Decoder decoder;
  mutable ScratchPool scratch_pool;
};

Tokenizer Tokenizer::load(const std::filesystem::path& file) {
  ATHANOR_CHECK_DATA(std::filesystem::is_regular_file(file), "{}: no such file; name a tokenizer.json", file.string());
  return parse(read_file(file), file.string());
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name_for_errors) {
  const auto document = parse_json(json, name_for_errors);
  return Tokenizer(std::make_shared<Impl>(json, JsonNode(document, name_for_errors)));
}

std::vector<uint32_t> Tokenizer::encode(std::string_view utf8) const {
  std::vector<uint32_t> ids;
  encode_append(utf8, ids);
  return ids;
}

void Tokenizer::encode_append(std::string_view utf8, std::vector<uint32_t>& out) const {
  if (const auto bad = find_invalid_utf8(utf8)) {
    fail<DataError>("byte {} (0x{:02X}) is not UTF-8; convert the text first", *bad,
                    static_cast<unsigned char>(utf8[*bad]));
  }
  ScratchPool::Loan scratch(impl_->scratch_pool);
  const size_t size_before = out.size();
  try {
    impl_->encode(utf8, *scratch, out);
  } catch (...) {
    out.resize(size_before);
    throw;
  }
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool skip_special_tokens) const {
  std::string bytes, text;
  bool first = true;
  for (const uint32_t id : ids) impl_->decoder.append(id, skip_special_tokens, first, bytes);
  append_utf8_lossy(text, bytes);
  return text;
}

uint32_t Tokenizer::vocab_size() const { return impl_->decoder.vocab_size(); }

std::optional<uint32_t> Tokenizer::token_to_id(std::string_view token) const {
  for (const auto& added : impl_->added.tokens()) {
    if (added.content == token) return added.id;
  }
  return impl_->model.token_to_id(token);
}

const std::string& Tokenizer::hash() const { return impl_->hash; }
const std::string& Tokenizer::json() const { return impl_->json; }

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens)
    : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

std::string StreamDecoder::push(uint32_t id) {
  tokenizer_.impl_->decoder.append(id, skip_special_tokens_, first_, pending_);
  const size_t certain = pending_.size() - unfinished_utf8_suffix(pending_);
  std::string text;
  append_utf8_lossy(text, std::string_view(pending_).substr(0, certain));
  pending_.erase(0, certain);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  append_utf8_lossy(text, pending_);
  pending_.clear();
  return text;
}

}  // namespace athanor
