#pragma once
// Converts text to token ids and back by the rules of a tokenizer's file. The ids equal those of `tokenizers` and
// `sentencepiece`.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text_template.h"

namespace athanor::inline tokenizer {

class DecodeStream;
class TokenizerBackend;
struct CompanionFiles;
struct LoadedTokenizer;

/// What becomes of the text of a special token ("</s>") within a text.
enum class SpecialText {
  kIsToken,  ///< it is that token, as everywhere else
  kIsText,   ///< it is text like any other (split_special_tokens of `transformers`)
};

/// A loaded tokenizer. Copies share the loaded data, and any number of threads may use one object concurrently.
///
/// From a tokenizer.json it reads added_tokens, normalizer, pre_tokenizer, model and decoder, and it refuses any part
/// of them that it does not know. It ignores truncation and padding: texts are encoded whole. encode() adds no tokens
/// around a text; text_template() has them. libsentencepiece reads a SentencePiece model, except that unigram.h finds
/// the pieces of a unigram model. The files that `transformers` keeps next to a tokenizer belong to it
/// (companion_files.h), whether the folder is named or a file in it that has the usual name.
class Tokenizer {
 public:
  /// Loads a tokenizer.json, a SentencePiece .model, GPT-2's vocab.json, or a folder with one of them
  /// (tokenizer_files.h).
  /// @throws IoError, or DataError naming the file and the byte or JSON path.
  static Tokenizer load(const std::filesystem::path& path);
  /// Parses the text of a tokenizer.json. `plain` leaves out every fast path: tests and fuzzers use the result as the
  /// oracle. @throws DataError as load().
  static Tokenizer parse(std::string_view json, const std::string& name_for_errors, bool plain = false);

  /// Returns the ids of `utf8`, equal to `encode(text, add_special_tokens=False).ids` of `tokenizers`.
  /// @throws DataError naming the first byte that is not UTF-8, or if the normalizer makes the text too long or a
  ///         pattern takes too long on it.
  std::vector<uint32_t> encode(std::string_view utf8, SpecialText special = SpecialText::kIsToken) const;
  /// Appends the ids of `utf8` to `out`, which is unchanged if encoding throws (as encode() does).
  void encode_append(std::string_view utf8, std::vector<uint32_t>& out,
                     SpecialText special = SpecialText::kIsToken) const;

  /// Returns the number of words into which the pre-tokenizer cuts `utf8` (well-formed), for benchmarks; 0 if a library
  /// does the cutting.
  size_t count_words(std::string_view utf8) const;

  /// Returns the text of `ids`. Ids without a token are skipped; bytes that form no character become U+FFFD.
  std::string decode(std::span<const uint32_t> ids, bool skip_special_tokens = false) const;

  /// Returns the texts of tokens for a message: "<s> [INST]", "token 7" for one without a text; "nothing" for none.
  std::string describe(std::span<const uint32_t> ids) const;

  /// Returns the highest id + 1, added tokens included: the least number of rows of an embedding.
  uint32_t vocab_size() const;
  /// Returns the id of an added token or a model token, spelled as in the file ("Ġthe").
  std::optional<uint32_t> token_to_id(std::string_view token) const;
  /// Returns the tokens that mark a text and are no part of it, in order: added tokens with the flag "special", control
  /// pieces of a SentencePiece model.
  std::vector<uint32_t> special_ids() const;
  /// Returns the token that ends a text: eos_token of the files next to the tokenizer, else what the model file itself
  /// names (SentencePiece models do).
  std::optional<uint32_t> eos_id() const;
  /// Returns the token that those files name as bos_token.
  std::optional<uint32_t> bos_id() const;
  /// Returns the tokens that stand around a text: those of the post-processor of a tokenizer.json (post_processor.h);
  /// of a SentencePiece model those that add_bos_token and add_eos_token ask for.
  /// @throws DataError if the post-processor is not known, or has a token beyond the vocabulary.
  TextTemplate text_template() const;

  /// Name of the file in which a copy of the tokenizer is kept: tokenizer.json or tokenizer.model. file_bytes() is its
  /// content.
  std::string file_name() const;
  const std::string& file_bytes() const;
  /// hash_hex of file_bytes().
  const std::string& hash() const { return hash_; }

 private:
  friend class StreamDecoder;
  explicit Tokenizer(LoadedTokenizer loaded);
  std::optional<uint32_t> named_token(const char* role) const;

  std::shared_ptr<const TokenizerBackend> backend_;
  std::shared_ptr<const CompanionFiles> companions_;
  std::string name_;  // for messages
  std::string hash_;
};

/// Decodes a growing list of ids and never returns a part of a character.
///
/// All results of push() and that of finish(), joined, equal decode() of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false);
  ~StreamDecoder();
  /// Returns the text that `id` completed; often empty, because a character may need more tokens.
  std::string push(uint32_t id);
  /// Returns the rest; a character that stayed incomplete becomes U+FFFD.
  std::string finish();

 private:
  std::shared_ptr<const TokenizerBackend> backend_;
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace athanor::inline tokenizer
