#pragma once
// Unicode as far as the patterns of tokenizers need it: decoding UTF-8, and classes of letters, numbers and spaces.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline tokenizer {

constexpr uint32_t kNumCodePoints = 0x110000;

/// An inclusive range of code points.
struct CodePointRange {
  uint32_t first, last;
};

/// Generated (unicode_ranges.cpp), sorted: \p{L}, \p{N}, \d, [\w], and the code points whose normalisation was defined
/// after the Unicode version by which `tokenizers` normalises, so that `tokenizers` leaves them unchanged.
extern const std::span<const CodePointRange> kLetterRanges, kNumberRanges, kDecimalRanges, kPatternWordRanges,
    kUnknownToNormalizationRanges;

/// Also generated, from a different Unicode version each: what the pre-tokenizers Digits, Punctuation and Whitespace
/// treat as a digit, as punctuation and as a part of a word; what StripAccents removes; what BertNormalizer removes as
/// an accent or as a control character.
extern const std::span<const CodePointRange> kDigitRanges, kPunctuationRanges, kWordRanges, kAccentRanges,
    kBertAccentRanges, kBertControlRanges;

/// Every step-th code point of [first, last] has its lower case at this distance.
struct CaseRange {
  uint32_t first, last, step;
  int32_t distance;
};
extern const std::span<const CaseRange> kLowercaseRanges;

/// Returns the lower case of one character, without context. U+0130, the only character whose lower case is two
/// characters, is returned unchanged.
uint32_t lowercase(uint32_t code_point);

enum class CharClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

/// Returns the class of any code point up to 0x10FFFF, in constant time.
CharClass char_class(uint32_t code_point);

/// Returns whether one of the ranges, which are ascending, has the code point.
bool in_ranges(std::span<const CodePointRange> sorted, uint32_t code_point);

/// A set of code points as 136 KB of bits; usual text touches only a few cache lines of it.
class CodePointSet {
 public:
  explicit CodePointSet(std::span<const CodePointRange> ranges);
  bool contains(uint32_t code_point) const { return bits_[code_point / 64] >> (code_point % 64) & 1; }

 private:
  std::vector<uint64_t> bits_;
};

/// True for the Unicode property White_Space.
inline bool is_space(uint32_t code_point) { return char_class(code_point) == CharClass::kSpace; }
/// True for code points in kWordRanges.
bool is_word(uint32_t code_point);

struct DecodedChar {
  uint32_t code_point;
  uint32_t num_bytes;
};

/// Decodes the character at `bytes`, which must be well-formed and inside the text.
inline DecodedChar decode_utf8(const char* bytes) {
  const auto at = [bytes](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  const uint32_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (at(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F), 4};
}

/// Appends `bytes` to `out`, with U+FFFD for every longest run of bytes that begins a character and does not complete
/// it. This is the practice of the WHATWG Encoding standard, which Python and Rust follow.
void append_utf8_lossy(std::string& out, std::string_view bytes);

/// Returns the number of bytes (0 to 3) at the end of `bytes` that begin a character which more bytes could complete.
size_t unfinished_utf8_suffix(std::string_view bytes);

}  // namespace athanor::inline tokenizer
