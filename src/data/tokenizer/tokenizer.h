#pragma once
// Text to token ids and back, as a tokenizer's file says: the same ids as `tokenizers` and `sentencepiece` give.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor {

class DecodeStream;
class TokenizerBackend;

/// Copies share what was loaded, and any number of threads may use one at a time.
///
/// Of a tokenizer.json it reads added_tokens, normalizer, pre_tokenizer, model and decoder, and refuses a part it does
/// not know. truncation, padding and post_processor do not matter: documents are encoded whole, with no tokens added
/// (post_processor.h adds them where a user asks). A SentencePiece model is read by libsentencepiece, except that
/// unigram pieces are found here (unigram.h).
class Tokenizer {
 public:
  /// A tokenizer.json, a SentencePiece .model, GPT-2's vocab.json, or a folder with one of them: see tokenizer_files.h.
  /// @throws IoError, or DataError naming the file and the byte or JSON path.
  static Tokenizer load(const std::filesystem::path& path);
  /// The text of a tokenizer.json. `plain`: without any fast way, as the oracle of tests and fuzzers.
  static Tokenizer parse(std::string_view json, const std::string& name_for_errors, bool plain = false);

  /// The ids of `utf8`, equal to `encode(text, add_special_tokens=False).ids` of `tokenizers`.
  /// @throws DataError naming the first byte that is not UTF-8, a text that the normalizer blows up, or a pattern that
  ///         takes too long on it.
  std::vector<uint32_t> encode(std::string_view utf8) const;
  /// Appends; `out` is as before if it throws.
  void encode_append(std::string_view utf8, std::vector<uint32_t>& out) const;

  /// How many words the pre-tokenizer cuts `utf8`, which is well-formed, into: for benchmarks. 0 where a library cuts.
  size_t count_words(std::string_view utf8) const;

  /// The text of `ids`. Ids without a token are passed over; bytes that form no character become U+FFFD.
  std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens = false) const;

  /// Highest id + 1, added tokens included: what an embedding needs at least.
  uint32_t vocab_size() const;
  /// An added or a model token, as it is written in the file ("Ġthe").
  std::optional<uint32_t> token_to_id(std::string_view token) const;
  /// The end-of-document token, if the file itself says which that is (SentencePiece models do).
  std::optional<uint32_t> eos_id() const;

  /// What to write where the tokenizer is to be kept, and under which name: tokenizer.json or tokenizer.model.
  std::string file_name() const;
  const std::string& file_bytes() const;
  /// hash_hex of file_bytes().
  const std::string& hash() const { return hash_; }

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const TokenizerBackend> backend);
  std::shared_ptr<const TokenizerBackend> backend_;
  std::string hash_;
};

/// Decodes a growing list of ids without ever giving half a character.
///
/// What push gave so far and finish() together are what decode() gives for all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false);
  ~StreamDecoder();
  /// The text that `id` made certain; often empty, where a character needs more tokens.
  std::string push(uint32_t id);
  /// What is left: a character that stayed unfinished is U+FFFD.
  std::string finish();

 private:
  std::shared_ptr<const TokenizerBackend> backend_;
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace athanor
