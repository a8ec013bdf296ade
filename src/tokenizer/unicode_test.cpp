#include "tokenizer/unicode.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/unicode_forms.h"

namespace athanor::unicode_test {
namespace {

std::string nfc_of(std::string_view text) {
  std::string storage;
  return std::string(normalize_unicode(UnicodeForm::kNfc, text, storage));
}

TEST(Unicode, ClassesAreThoseOfLettersNumbersAndWhiteSpace) {
  for (const uint32_t c : {0x41u, 0xAAu, 0x6F22u, 0x1C89u, 0x323AFu}) EXPECT_EQ(char_class(c), CharClass::kLetter) << c;
  for (const uint32_t c : {0x30u, 0xBCu, 0x663u, 0x2173u}) EXPECT_EQ(char_class(c), CharClass::kNumber) << c;
  for (const uint32_t c : {0x20u, 0x0Bu, 0x85u, 0xA0u, 0x3000u}) EXPECT_EQ(char_class(c), CharClass::kSpace) << c;
  for (const uint32_t c : {0x21u, 0x180Eu, 0x200Bu, 0x301u, 0x10FFFFu})
    EXPECT_EQ(char_class(c), CharClass::kOther) << c;
}

TEST(Unicode, BrokenCharactersBecomeOneReplacementForEachBeginning) {
  const auto lossy = [](std::string_view bytes) {
    std::string text;
    append_utf8_lossy(text, bytes);
    return text;
  };
  EXPECT_EQ(lossy("a\xE6\xBC\xA2"), "a漢");
  EXPECT_EQ(lossy("\xE6\xBC"), "\uFFFD");
  EXPECT_EQ(lossy("\xE6\xBCz\xF0\x9F\x98\xE6"), "\uFFFDz\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate: none of its bytes begins a character
  EXPECT_EQ(lossy("\xC0\x80\xFF"), "\uFFFD\uFFFD\uFFFD");
}

TEST(Unicode, OnlyACharacterThatMoreBytesCouldFinishIsUnfinished) {
  EXPECT_EQ(unfinished_utf8_suffix("a"), 0u);
  EXPECT_EQ(unfinished_utf8_suffix("a\xE6"), 1u);
  EXPECT_EQ(unfinished_utf8_suffix("a\xE6\xBC"), 2u);
  EXPECT_EQ(unfinished_utf8_suffix("\xF0\x9F\x98"), 3u);
  EXPECT_EQ(unfinished_utf8_suffix("漢"), 0u);
  EXPECT_EQ(unfinished_utf8_suffix("\xED\xA0"), 0u);
  EXPECT_EQ(unfinished_utf8_suffix("\xBC"), 0u);
}

TEST(Nfc, ComposesReordersAndReplaces) {
  EXPECT_EQ(nfc_of("plain"), "plain");
  EXPECT_EQ(nfc_of("xe\u0301y"), "x\u00e9y");
  EXPECT_EQ(nfc_of("e\u0301\u0323"), "\u1eb9\u0301");  // dot below sorts first, and composes
  EXPECT_EQ(nfc_of("\u1100\u1161\u11a8"), "\uac01");   // Hangul
  EXPECT_EQ(nfc_of("\u212b\u2126"), "\u00c5\u03a9");   // symbols that are letters
  EXPECT_EQ(nfc_of("\u0958"), "\u0915\u093c");         // excluded from composition
  EXPECT_EQ(nfc_of("\u0301\u0301a"), "\u0301\u0301a");
  EXPECT_EQ(nfc_of("e\u0301 e\u0301"), "\u00e9 \u00e9");
  EXPECT_EQ(nfc_of("か\u3099"), "が");
}

TEST(Nfc, MarksThatTokenizersDoesNotKnowStandWhereTheyStood) {
  EXPECT_EQ(nfc_of("a\u0898\u0316\u0301"), "a\u0898\u0316\u0301");  // Unicode 14; newer tables would compose á
}

TEST(Nfc, IsItsOwnFixedPointOnEveryCodePointBetweenLettersAndMarks) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text = "e";
    append_utf8(text, c);
    text += "\u0316\u0301";
    const auto once = nfc_of(text);
    ASSERT_EQ(nfc_of(once), once) << c;
  }
}

TEST(ByteLevel, EveryByteHasItsCharacterAndComesBack) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  EXPECT_EQ(bytes_from_alphabet(alphabet_from_bytes(bytes)), bytes);
  EXPECT_EQ(alphabet_from_bytes(" the\n"), "ĠtheĊ");
  EXPECT_EQ(bytes_from_alphabet("a b"), std::nullopt);
  EXPECT_EQ(bytes_from_alphabet("漢"), std::nullopt);
}

}  // namespace
}  // namespace athanor::unicode_test
