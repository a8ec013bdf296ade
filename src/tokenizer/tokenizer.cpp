#include "tokenizer/tokenizer.h"

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"
#include "tokenizer/tokenizer_backend.h"
#include "tokenizer/tokenizer_files.h"

namespace athanor {

Tokenizer::Tokenizer(std::shared_ptr<const TokenizerBackend> backend)
    : backend_(std::move(backend)), hash_(hash_hex(backend_->file_bytes())) {}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return with_io_errors([&] { return Tokenizer(load_tokenizer_files(path)); });
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name_for_errors, bool plain) {
  return Tokenizer(make_json_tokenizer(json, name_for_errors, plain));
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
  const size_t size_before = out.size();
  try {
    backend_->encode(utf8, out);
  } catch (...) {
    out.resize(size_before);
    throw;
  }
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool skip_special_tokens) const {
  return backend_->decode(ids, skip_special_tokens);
}

size_t Tokenizer::count_words(std::string_view utf8) const { return backend_->count_words(utf8); }
uint32_t Tokenizer::vocab_size() const { return backend_->vocab_size(); }
std::optional<uint32_t> Tokenizer::token_to_id(std::string_view token) const { return backend_->token_to_id(token); }
std::optional<uint32_t> Tokenizer::eos_id() const { return backend_->eos_id(); }
std::string Tokenizer::file_name() const { return backend_->file_name(); }
const std::string& Tokenizer::file_bytes() const { return backend_->file_bytes(); }

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : backend_(tokenizer.backend_), stream_(backend_->stream(skip_special_tokens)) {}
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(uint32_t id) { return stream_->push(id); }
std::string StreamDecoder::finish() { return stream_->finish(); }

}  // namespace athanor
