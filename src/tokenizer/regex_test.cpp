#include "tokenizer/regex.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tokenizer/regex_dialect.h"

namespace athanor::regex_test {
namespace {

std::string first_match(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern);
  RegexScratch scratch;
  Regex::Match match;
  return regex.find(text, 0, scratch, match) ? std::string(text.substr(match.begin, match.end - match.begin)) : "none";
}

TEST(Regex, ClassesMeanWhatTheyMeanToOniguruma) {
  EXPECT_EQ(first_match("\\s", "\u180e\u3000"), "\u3000");  // U+180E is a space to PCRE2 only
  EXPECT_EQ(first_match("[^\\s]+", "\u180ea "), "\u180ea");
  EXPECT_EQ(first_match("\\p{L}+", "1\u1c89\U000323af2"), "\u1c89\U000323af");  // newer than PCRE2 10.42
  EXPECT_EQ(first_match("[\\p{N}x]+", "a\U00011bf0x"), "\U00011bf0x");
  EXPECT_EQ(first_match("\\P{L}+", "a\u1c89!"), "!");
  EXPECT_EQ(first_match("\\w+", "-\u00bc_\u203f"), "\u00bc_\u203f");
  EXPECT_EQ(first_match("[\\w]", "\u00bca"), "a");
  EXPECT_EQ(first_match("\\w+", "a\u200db"), "a");  // a joiner is no part of a word
  EXPECT_EQ(first_match("[^\\w]", "a\u200c"), "\u200c");
  EXPECT_EQ(first_match("\\p{Han}+", "\uff65\u6f22"), "\u6f22");  // a dot that scripts share belongs to none
  EXPECT_EQ(first_match("b$", "ab\nc"), "b");
  EXPECT_EQ(first_match("[a[bc]d]+", "xabcdx"), "abcd");
  EXPECT_EQ(first_match("[a-d&&[^b]]+", "abcd"), "a");
  EXPECT_EQ(first_match("[\\u4e00-\\u9fff]+", "a\u6f22\u5b57"), "\u6f22\u5b57");
  EXPECT_EQ(first_match("\\b.", "\u0301a b"), "\u0301");  // a mark is part of a word
}

TEST(Regex, LiteralsAreEscaped) {
  EXPECT_EQ(first_match(escape_regex("a.b|[c]"), "axb a.b|[c]"), "a.b|[c]");
  EXPECT_EQ(first_match(escape_regex("漢\n"), "漢\n"), "漢\n");
}

TEST(Regex, WhatCouldMeanSomethingElseIsRefused) {
  for (const auto* pattern :
       {"a{2}+",   "[a[^b]]", "[[:alpha:]]", "[a-[b]]", "[a&&b]",  "[^a&&[^b]]", "[a&&[^b]c]", "\\ud800",
        "(?<n>a)", "\\h",     "\\p{Foo}",    "[\\W]",   "(?m:a)",  "a(?i)b",     "\\1",        "[]a]",
        "\\xff",   "\\",      "\\p{L",       "\\G",     "(*FAIL)", "\\p{^L}"}) {
    EXPECT_THROW(pcre2_from_oniguruma(pattern), DataError) << pattern;
  }
  EXPECT_THROW(Regex("(a"), DataError);
}

TEST(Regex, AMegabyteIsMatchedWithoutAStack) {
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(first_match("(?:a|b)+", text).size(), text.size());
}

}  // namespace
}  // namespace athanor::regex_test
