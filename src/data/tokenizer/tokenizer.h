#pragma once
// Text to token ids and back, as a tokenizer.json says: the same ids as the `tokenizers` library gives.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor {

/// A byte-level BPE tokenizer. Copies share what was loaded, and any number of threads may use one at a time.
///
/// Of a tokenizer.json it reads added_tokens, normalizer, pre_tokenizer, model and decoder, and refuses a part it does
/// not know. truncation, padding and post_processor do not matter: documents are encoded whole, with no tokens added.
class Tokenizer {
 public:
  /// @throws IoError, or DataError naming the file and the byte or JSON path.
  static Tokenizer load(const std::filesystem::path& file);
  static Tokenizer parse(std::string_view json, const std::string& name_for_errors);

  /// The ids of `utf8`, equal to `encode(text, add_special_tokens=False).ids` of `tokenizers`.
  /// @throws DataError naming the first byte that is not UTF-8, or a byte without token.
  std::vector<uint32_t> encode(std::string_view utf8) const;
  /// Appends; `out` is as before if it throws.
  void encode_append(std::string_view utf8, std::vector<uint32_t>& out) const;

  /// The text of `ids`. Ids without a token are passed over; bytes that form no character become U+FFFD.
  std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens = false) const;

  /// Highest id + 1, added tokens included: what an embedding needs at least.
  uint32_t vocab_size() const;
  /// An added or a model token, as it is written in the file ("Ġthe").
  std::optional<uint32_t> token_to_id(std::string_view token) const;
  /// hash_hex of the file's bytes.
  const std::string& hash() const;
  /// The file as it was read, to be copied beside an exported model.
  const std::string& json() const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Decodes a growing list of ids without ever giving half a character.
///
/// What push gave so far and finish() together are what decode() gives for all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = false);
  /// The text that `id` made certain; often empty, where a character needs more tokens.
  std::string push(uint32_t id);
  /// What is left: a character that stayed unfinished is U+FFFD.
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_tokens_, first_ = true;
  std::string pending_;
};

}  // namespace athanor
