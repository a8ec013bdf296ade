#include "tokenizer/known_patterns.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace athanor::known_patterns_test {
namespace {

using Words = std::vector<std::string>;

Words by_hand(const KnownPattern& known, const std::string& text) {
  Words words;
  auto take = [&](std::string_view word) { words.emplace_back(word); };
  known.cut(text, take);
  return words;
}

// Returns matches, and the gaps between them if the pattern leaves some.
Words by_engine(const KnownPattern& known, const Regex& pattern, const std::string& text) {
  Words words;
  RegexScratch scratch;
  Regex::Match match;
  size_t done = 0;
  while (done < text.size() && pattern.find(text, done, scratch, match)) {
    if (match.begin > done) words.push_back(text.substr(done, match.begin - done));
    EXPECT_TRUE(match.begin == done || known.leaves_gaps) << "the pattern leaves a gap in " << text;
    words.push_back(text.substr(match.begin, match.end - match.begin));
    done = match.end;
  }
  if (done < text.size()) words.push_back(text.substr(done));
  return words;
}

class KnownPatterns : public testing::TestWithParam<KnownPattern> {};

TEST_P(KnownPatterns, AreFoundByTheirText) {
  EXPECT_EQ(find_known_pattern(GetParam().pattern)->name, GetParam().name);
  EXPECT_EQ(find_known_pattern(std::string(GetParam().pattern) + "|x"), nullptr);
}

TEST_P(KnownPatterns, CutRandomTextAsTheEngineDoes) {
  const Regex pattern(GetParam().pattern);
  const CounterRandom random(1, GetParam().name);
  const std::string pieces[] = {
      "'",      "'",      "s",      "S",          "ll", "VE",   "re",     "d",          "ſ",      "t",
      " ",      " ",      "  ",     "\n",         "\r", "\r\n", "\t",     "\u00a0",     "\u3000", "\u0085",
      "\v",     "1",      "22",     "٣",          "½",  "a",    "B",      "é",          "É",      "ǅ",
      "ʰ",      "ª",      "漢",     "か",         "ー", "゛",   "\u0301", "\u20dd",     "\u0903", "!",
      "/",      "-",      "_",      "$",          "€",  "+",    "。",     "\U0001F600", "\u200b", "\x01",
      "\u0378", "\ue000", "\u2028", "\U00010400", "K",  "Σ",    "ﬁ",      "ﬅ",          "ŉ",      "İ"};
  for (uint64_t round = 0; round < 8000; ++round) {
    std::string text;
    const uint64_t length = 1 + random.below(round * 64, 12);
    for (uint64_t i = 1; i <= length; ++i) text += pieces[random.below(round * 64 + i, std::size(pieces))];
    ASSERT_EQ(by_hand(GetParam(), text), by_engine(GetParam(), pattern, text)) << text;
  }
}

TEST_P(KnownPatterns, CutEveryCodePointAsTheEngineDoes) {
  const Regex pattern(GetParam().pattern);
  std::string text;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    constexpr const char* kBefore[] = {" ", "a", "", "'", "B"};
    text += kBefore[c % std::size(kBefore)];
    append_utf8(text, c);
    if (c % 4096 != 4095 && c != 0x10FFFF) continue;
    ASSERT_EQ(by_hand(GetParam(), text), by_engine(GetParam(), pattern, text)) << "before code point " << c;
    text.clear();
  }
}

TEST_P(KnownPatterns, CutNothingAsNothing) { EXPECT_EQ(by_hand(GetParam(), ""), Words{}); }

INSTANTIATE_TEST_SUITE_P(All, KnownPatterns, testing::ValuesIn(known_patterns().begin(), known_patterns().end()),
                         [](const auto& instance) {
                           std::string name(instance.param.name);
                           std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
                           return name;
                         });

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

}  // namespace athanor::known_patterns_test
