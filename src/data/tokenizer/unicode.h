#pragma once
// Unicode as the patterns of tokenizers need it: reading UTF-8, and which characters are letters, numbers, spaces.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace athanor {

/// First and last code point, both inside.
struct CodePointRange {
  uint32_t first, last;
};

/// Generated (unicode_ranges.cpp), sorted: \p{L}, \p{N}, \d, [\w], and the code points whose normalisation was settled
/// after the Unicode version that `tokenizers` normalises by, which it therefore leaves alone.
extern const std::span<const CodePointRange> kLetterRanges, kNumberRanges, kDecimalRanges, kPatternWordRanges,
    kUnknownToNormalizationRanges;

/// Generated, too; each after another Unicode version: what the pre-tokenizer Digits takes for a digit, Punctuation for
/// punctuation, Whitespace for a part of a word, what StripAccents removes, and what BertNormalizer removes as an
/// accent or as a control character.
extern const std::span<const CodePointRange> kDigitRanges, kPunctuationRanges, kWordRanges, kAccentRanges,
    kBertAccentRanges, kBertControlRanges;

/// Every step-th code point of [first, last] has its lower case at this distance.
struct CaseRange {
  uint32_t first, last, step;
  int32_t distance;
};
extern const std::span<const CaseRange> kLowercaseRanges;

/// Of one character, without a look at its neighbours. U+0130, the only one to become two, is left as it is.
uint32_t lowercase(uint32_t code_point);

enum class CharClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

/// Of any code point up to 0x10FFFF; constant time.
CharClass char_class(uint32_t code_point);

bool in_ranges(std::span<const CodePointRange> sorted, uint32_t code_point);

/// Code points as 136 KB of bits, of which text touches a few lines.
class CodePointSet {
 public:
  explicit CodePointSet(std::span<const CodePointRange> ranges);
  bool contains(uint32_t code_point) const { return bits_[code_point / 64] >> (code_point % 64) & 1; }

 private:
  std::vector<uint64_t> bits_;
};

/// White_Space.
inline bool is_space(uint32_t code_point) { return char_class(code_point) == CharClass::kSpace; }
/// kWordRanges.
bool is_word(uint32_t code_point);

struct DecodedChar {
  uint32_t code_point;
  uint32_t num_bytes;
};

/// The character at `bytes`, which must be well-formed and inside the text.
inline DecodedChar decode_utf8(const char* bytes) {
  const auto at = [bytes](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])); };
  const uint32_t lead = at(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (at(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F), 4};
}

/// Appends `bytes` to `out`, with U+FFFD for every longest run of bytes that begins a character and does not finish it
/// (the practice of the WHATWG Encoding standard, which Python and Rust follow).
void append_utf8_lossy(std::string& out, std::string_view bytes);

/// How many bytes at the end of `bytes` begin a character that more bytes could finish: 0 to 3.
size_t unfinished_utf8_suffix(std::string_view bytes);

}  // namespace athanor
