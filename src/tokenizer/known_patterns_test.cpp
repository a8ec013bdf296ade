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

}  // namespace
}  // namespace athanor::known_patterns_test
