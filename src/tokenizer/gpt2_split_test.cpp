#include "tokenizer/gpt2_split.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/text.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace athanor::gpt2_split_test {
namespace {

std::vector<std::string> by_hand(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = gpt2_word_end(text, at);
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::vector<std::string> by_pattern(const Regex& pattern, const std::string& text) {
  std::vector<std::string> words;
  RegexScratch scratch;
  Regex::Match match;
  for (size_t at = 0; at < text.size() && pattern.find(text, at, scratch, match); at = match.end) {
    EXPECT_EQ(match.begin, at) << "the pattern leaves a gap in " << text;
    words.push_back(text.substr(match.begin, match.end - match.begin));
  }
  return words;
}

TEST(Gpt2Split, CutsAsItsAuthorsShow) {
  EXPECT_EQ(by_hand("I've  2 cats' \n\n toys!!"),
            (std::vector<std::string>{"I", "'ve", " ", " 2", " cats", "'", " \n\n", " toys", "!!"}));
}

TEST(Gpt2Split, EqualsItsPatternOnRandomText) {
  const Regex pattern(kGpt2Pattern);
  const CounterRandom random(1, "gpt2");
  const std::string pieces[] = {"'", "s",  "t",      "re",     "ve",     "m",      "ll", "d", " ",
                                " ", "  ", "\n",     "\t",     "1",      "٣",      "a",  "é", "漢",
                                "!", "-",  "\u00a0", "\u3000", "\u0301", "\u0085", "ſ",  "L", "\U0001F600"};
  for (uint64_t round = 0; round < 20000; ++round) {
    std::string text;
    const uint64_t length = 1 + random.below(round * 64, 12);
    for (uint64_t i = 1; i <= length; ++i) text += pieces[random.below(round * 64 + i, std::size(pieces))];
    ASSERT_EQ(by_hand(text), by_pattern(pattern, text)) << text;
  }
}

TEST(Gpt2Split, EqualsItsPatternOnEveryCodePoint) {
  const Regex pattern(kGpt2Pattern);
  std::string text;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    text += c % 3 ? " " : "a";
    append_utf8(text, c);
    if (c % 4096 != 4095 && c != 0x10FFFF) continue;
    ASSERT_EQ(by_hand(text), by_pattern(pattern, text)) << "before code point " << c;
    text.clear();
  }
}

}  // namespace
}  // namespace athanor::gpt2_split_test
