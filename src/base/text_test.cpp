#include "base/text.h"

#include <gtest/gtest.h>

#include <cmath>

namespace athanor {

TEST(Text, SmallFiguresShowThreeDigitsAndOthersTwoDecimals) {
  EXPECT_EQ(format_digits(202.784), "202.78");
  EXPECT_EQ(format_digits(1), "1.00");
  EXPECT_EQ(format_digits(0), "0.00");
  EXPECT_EQ(format_digits(0.5), "0.500");
  EXPECT_EQ(format_digits(0.05012), "0.0501");
  EXPECT_EQ(format_digits(0.0000123), "0.0000123");
  EXPECT_EQ(format_digits(1e-30), "0.000000000000");
  EXPECT_EQ(format_digits(INFINITY), "inf");
}

TEST(Text, RatesOfArithmeticHaveTheUnitThatShowsTheirDigits) {
  EXPECT_EQ(format_flop_rate(8.294e11), "829.40 GFLOP/s");
  EXPECT_EQ(format_flop_rate(1.5e12), "1.50 TFLOP/s");
  EXPECT_EQ(format_flop_rate(3.25e6), "3.25 MFLOP/s");
  EXPECT_EQ(format_flop_rate(0), "0.00 FLOP/s");
}

TEST(Text, BytesThousandsAndDurationsReadAsPeopleWriteThem) {
  EXPECT_EQ(format_bytes(512), "512B");
  EXPECT_EQ(format_bytes(7.33 * 1024 * 1024 * 1024), "7.33GiB");
  EXPECT_EQ(format_thousands(11636.4), "11,636");
  EXPECT_EQ(format_thousands(999), "999");
  EXPECT_EQ(format_thousands(1000000), "1,000,000");
  EXPECT_EQ(format_duration(3723.4), "1:02:03");
  EXPECT_EQ(format_duration(59.4), "0:59");
}

TEST(Text, NearestNameFindsASlipAndNotAnotherWord) {
  const std::vector<std::string> names = {"hidden_size", "num_experts", "steps"};
  EXPECT_EQ(nearest_name("hiden_size", names), "hidden_size");
  EXPECT_EQ(nearest_name("step", names), "steps");
  EXPECT_EQ(nearest_name("temperature", names), std::nullopt);
  EXPECT_EQ(nearest_name(std::string(size_t{1} << 26, 'm'), names), std::nullopt);  // at once, and not in its product
}

TEST(Text, InvalidUtf8IsFoundAtItsFirstByte) {
  EXPECT_EQ(find_invalid_utf8("naïve 日本 🙂"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("ab\xff"), 2u);
  EXPECT_EQ(find_invalid_utf8("a\xc0\xaf"), 1u);          // overlong '/'
  EXPECT_EQ(find_invalid_utf8("\xed\xa0\x80"), 0u);       // a surrogate
  EXPECT_EQ(find_invalid_utf8("x\xf4\x90\x80\x80"), 1u);  // beyond U+10FFFF
  EXPECT_EQ(find_invalid_utf8("cut \xe6\x97"), 4u);       // truncated
}

TEST(Text, AppendedCodePointsAreValidUtf8) {
  for (const uint32_t code_point : {0x24u, 0xA3u, 0x20ACu, 0x10348u, 0x10FFFFu}) {
    std::string text;
    append_utf8(text, code_point);
    EXPECT_EQ(find_invalid_utf8(text), std::nullopt) << code_point;
  }
}

TEST(Text, PrintableTextStaysOnOneLine) { EXPECT_EQ(printable("a\nb\t\x01é"), "a\\nb\\t\\x01é"); }

TEST(Text, WildcardsMatchAsInAShell) {
  EXPECT_TRUE(matches_wildcard("*.norm.weight", "model.norm.weight"));
  EXPECT_TRUE(matches_wildcard("a?c*", "abcdef"));
  EXPECT_FALSE(matches_wildcard("a?c", "abcd"));
  EXPECT_FALSE(matches_wildcard("*x", "abc"));
  EXPECT_TRUE(matches_wildcard("*", ""));
}

}  // namespace athanor
