#include "tokenizer/tokenizer.h"

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/text.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/tokenizer_backend.h"
#include "tokenizer/tokenizer_files.h"

namespace athanor::inline tokenizer {

Tokenizer::Tokenizer(LoadedTokenizer loaded)
    : backend_(std::move(loaded.backend)),
      companions_(std::make_shared<const CompanionFiles>(std::move(loaded.companions))), name_(std::move(loaded.name)),
      hash_(hash_hex(backend_->file_bytes())) {}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return with_io_errors([&] { return Tokenizer(load_tokenizer_files(path)); });
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name_for_errors, bool plain) {
  LoadedTokenizer loaded;
  loaded.backend = make_json_tokenizer(json, name_for_errors, plain);
  loaded.name = name_for_errors;
  return Tokenizer(std::move(loaded));
}

std::vector<uint32_t> Tokenizer::encode(std::string_view utf8, SpecialText special) const {
  std::vector<uint32_t> ids;
  encode_append(utf8, ids, special);
  return ids;
}

void Tokenizer::encode_append(std::string_view utf8, std::vector<uint32_t>& out, SpecialText special) const {
  if (const auto bad = find_invalid_utf8(utf8)) {
    fail<DataError>("byte {} (0x{:02X}) is not UTF-8; convert the text first", *bad,
                    static_cast<unsigned char>(utf8[*bad]));
  }
  const size_t size_before = out.size();
  try {
    backend_->encode(utf8, special, out);
  } catch (...) {
    out.resize(size_before);
    throw;
  }
}

std::string Tokenizer::decode(std::span<const uint32_t> ids, bool skip_special_tokens) const {
  return backend_->decode(ids, skip_special_tokens);
}

std::string Tokenizer::describe(std::span<const uint32_t> ids) const {
  std::vector<std::string> texts;
  for (const uint32_t id : ids) {
    const std::string text = decode({&id, 1});
    texts.push_back(text.empty() ? fmt::format("token {}", id) : text);
  }
  return texts.empty() ? "nothing" : join(texts, " ");
}

size_t Tokenizer::count_words(std::string_view utf8) const { return backend_->count_words(utf8); }
uint32_t Tokenizer::vocab_size() const { return backend_->vocab_size(); }
std::optional<uint32_t> Tokenizer::token_to_id(std::string_view token) const { return backend_->token_to_id(token); }
std::vector<uint32_t> Tokenizer::special_ids() const { return backend_->special_ids(); }

std::optional<uint32_t> Tokenizer::named_token(const char* role) const {
  const auto found = companions_->named.find(role);
  return found == companions_->named.end() ? std::nullopt : token_to_id(found->second);
}

std::optional<uint32_t> Tokenizer::bos_id() const { return named_token("bos_token"); }
std::optional<uint32_t> Tokenizer::eos_id() const {
  const auto named = named_token("eos_token");
  return named ? named : backend_->eos_id();
}

TextTemplate Tokenizer::text_template() const {
  TextTemplate around;
  if (file_name() == "tokenizer.json") {
    around = read_text_template(file_bytes(), name_);
    for (const uint32_t id : around.around({}))
      ATHANOR_CHECK_DATA(id < vocab_size(), "{}: its post_processor has token {}, beyond its {} tokens; correct it",
                         name_, id, vocab_size());
    return around;
  }
  if (const auto bos = bos_id(); companions_->add_bos && bos) around.before.push_back(*bos);
  if (const auto eos = eos_id(); companions_->add_eos && eos) around.after.push_back(*eos);
  return around;
}

std::string Tokenizer::file_name() const { return backend_->file_name(); }
const std::string& Tokenizer::file_bytes() const { return backend_->file_bytes(); }

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : backend_(tokenizer.backend_), stream_(backend_->stream(skip_special_tokens)) {}
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(uint32_t id) { return stream_->push(id); }
std::string StreamDecoder::finish() { return stream_->finish(); }

}  // namespace athanor::inline tokenizer
