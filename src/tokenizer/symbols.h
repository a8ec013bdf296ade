#pragma once
// The symbols of a word before any merge: one for each byte or character.
//
// With byte_fallback, a character that the vocabulary lacks becomes its bytes (<0xE3>) if the vocabulary has those;
// else it becomes the unknown token. If there is no unknown token, it is left out, as in `tokenizers`.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline tokenizer {

enum class WordKind : uint8_t {
  kBytes,       // the pre-tokenizer ends in ByteLevel: symbols are bytes, spelled in the byte-level alphabet
  kCharacters,  // symbols are characters
};

struct SymbolOptions {
  WordKind kind = WordKind::kBytes;
  std::string prefix;  // prefix of every symbol but a word's first (continuing_subword_prefix)
  std::string suffix;  // suffix of a word's last symbol (end_of_word_suffix)
  bool byte_fallback = false;
  std::optional<std::string> unknown;
  bool fuse_unknown = false;
};

/// Maps the bytes or characters of a word to ids. Construction does not throw: with a vocabulary that lacks symbols,
/// some characters are unknown.
class SymbolTable {
 public:
  using TokenToId = std::function<std::optional<uint32_t>(std::string_view)>;
  /// @param tokens  the vocabulary, by id; ids without a token are empty.
  SymbolTable(SymbolOptions options, const std::vector<std::string>& tokens, const TokenToId& token_to_id);

  /// Appends the symbols of `word`, bytes or well-formed UTF-8.
  /// @throws DataError if an unknown token is needed and is not in the vocabulary.
  void append(std::string_view word, std::vector<uint32_t>& ids) const;

  /// True if the table leaves out some characters.
  bool loses_text() const;

  enum class Kind : uint8_t {
    kKnown,  // has a token
    kBytes,  // becomes byte tokens, whatever surrounds it
    kOther,  // may be unknown, or may depend on its position in the word
  };
  /// Returns the kind of a character, for words of characters without affixes.
  Kind kind_of(uint32_t code_point) const { return ids_[0].find(code_point) != kNone ? Kind::kKnown : unknown_kind_; }
  bool has_affixes() const { return !options_.prefix.empty() || !options_.suffix.empty(); }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  // A symbol's position in its word.
  static constexpr int kAfterFirst = 1, kLast = 2;
  static constexpr int kNumPlaces = 4;
  static constexpr uint32_t kPageSize = 256;

  /// Ids by code point, or by byte.
  class Ids {
   public:
    Ids() : page_of_(0x110000 / kPageSize, 0), ids_(kPageSize, kNone) {}
    uint32_t find(uint32_t c) const { return ids_[page_of_[c / kPageSize] * kPageSize + c % kPageSize]; }
    void set(uint32_t c, uint32_t id);

   private:
    std::vector<uint32_t> page_of_;  // page 0 is empty
    std::vector<uint32_t> ids_;
  };

  std::string spelling(uint32_t c, int place) const;
  void read_symbol(std::string_view token, uint32_t id);
  void append_unknown(uint32_t c, int place, uint32_t& pending, std::vector<uint32_t>& ids) const;

  SymbolOptions options_;
  std::array<Ids, kNumPlaces> ids_;       // without affixes all positions use the first
  std::array<uint32_t, 256> byte_ids_{};  // ids of <0x00> to <0xFF>
  uint32_t unknown_ = kNone;
  Kind unknown_kind_ = Kind::kOther;
};

}  // namespace athanor::inline tokenizer
