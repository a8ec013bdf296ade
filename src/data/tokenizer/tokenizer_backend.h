#pragma once
// What stands behind a Tokenizer: one implementation for each kind of tokenizer file.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor {

/// Decodes a growing list of ids; see StreamDecoder.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  virtual std::string push(uint32_t id) = 0;
  virtual std::string finish() = 0;
};

/// Immutable once made: any number of threads may use one at a time.
class TokenizerBackend {
 public:
  virtual ~TokenizerBackend() = default;
  /// Appends the ids of `utf8`, which is well-formed. What `out` holds when it throws does not matter.
  virtual void encode(std::string_view utf8, std::vector<uint32_t>& out) const = 0;
  /// How many words `utf8` is cut into before the model sees them; 0 if that cannot be known.
  virtual size_t count_words(std::string_view) const { return 0; }
  virtual std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens) const = 0;
  /// The stream may outlive nothing of the backend: whoever holds it holds the backend, too.
  virtual std::unique_ptr<DecodeStream> stream(bool skip_special_tokens) const = 0;
  virtual uint32_t vocab_size() const = 0;
  virtual std::optional<uint32_t> token_to_id(std::string_view token) const = 0;
  /// The end-of-document token, if the file itself says which that is.
  virtual std::optional<uint32_t> eos_id() const { return std::nullopt; }
  /// The file as Tokenizer::file_name and file_bytes give it.
  virtual const char* file_name() const = 0;
  virtual const std::string& file_bytes() const = 0;
};

/// `plain`: every fast way is left out: the general regex engine cuts, a plain loop merges, nothing is remembered.
/// Slow; it is the oracle of the fast ways, which must test it where they are chosen (parse_split_rule, Bpe::parse).
/// @throws DataError naming the byte or the JSON path; `name_for_errors` is the file.
std::shared_ptr<const TokenizerBackend> make_json_tokenizer(std::string_view json, const std::string& name_for_errors,
                                                            bool plain = false);

/// `model`: a SentencePiece model of any kind.
/// @throws DataError naming `name_for_errors` if it is none, or damaged.
std::shared_ptr<const TokenizerBackend> make_sentencepiece_tokenizer(std::string model,
                                                                     const std::string& name_for_errors);

}  // namespace athanor
