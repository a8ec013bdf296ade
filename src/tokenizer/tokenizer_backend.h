#pragma once
// The interface behind Tokenizer: one implementation for each kind of tokenizer file.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/companion_files.h"
#include "tokenizer/tokenizer.h"

namespace athanor::inline tokenizer {

/// Decodes a growing list of ids; see StreamDecoder.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  virtual std::string push(uint32_t id) = 0;
  virtual std::string finish() = 0;
};

/// Immutable: any number of threads may use one object concurrently.
class TokenizerBackend {
 public:
  virtual ~TokenizerBackend() = default;
  /// Appends the ids of `utf8`, which is well-formed. If it throws, the content of `out` is unspecified.
  virtual void encode(std::string_view utf8, SpecialText special, std::vector<uint32_t>& out) const = 0;
  /// Returns the number of words into which `utf8` is cut before the model sees them; 0 if that is not known.
  virtual size_t count_words(std::string_view) const { return 0; }
  virtual std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens) const = 0;
  /// The backend must outlive the stream: the holder of the stream holds the backend too.
  virtual std::unique_ptr<DecodeStream> stream(bool skip_special_tokens) const = 0;
  virtual uint32_t vocab_size() const = 0;
  virtual std::optional<uint32_t> token_to_id(std::string_view token) const = 0;
  /// Returns the tokens that mark a text and are no part of it, in order.
  virtual std::vector<uint32_t> special_ids() const = 0;
  /// Returns the end-of-document token if the file itself names it.
  virtual std::optional<uint32_t> eos_id() const { return std::nullopt; }
  /// The file that Tokenizer::file_name and file_bytes return.
  virtual const char* file_name() const = 0;
  virtual const std::string& file_bytes() const = 0;
};

/// `plain` leaves out every fast path: the general regex engine cuts, a plain loop merges, and nothing is cached. It is
/// slow and serves as the oracle of the fast paths, so each place that chooses a fast path (parse_split_rule,
/// Bpe::parse) must test `plain`.
/// The tokens of `companions` are added: file_bytes() has them too, so that a copy needs no companions.
/// @throws DataError naming the byte or the JSON path; `name_for_errors` is the file.
std::shared_ptr<const TokenizerBackend> make_json_tokenizer(std::string_view json, const std::string& name_for_errors,
                                                            bool plain = false, const CompanionFiles& companions = {});

/// @param model  the bytes of a SentencePiece model of any kind.
/// @throws DataError naming `name_for_errors` if `model` is not a SentencePiece model, or is damaged; naming the
///         companion file that has a token with an id which the model lacks: such a model cannot be extended.
std::shared_ptr<const TokenizerBackend> make_sentencepiece_tokenizer(std::string model,
                                                                     const std::string& name_for_errors,
                                                                     const CompanionFiles& companions = {});

}  // namespace athanor::inline tokenizer
