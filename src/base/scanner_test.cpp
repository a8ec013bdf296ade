// The scanner of small languages, in a language with all that a lexicon may have.

#include "base/scanner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace athanor::scanner_test {
namespace {

constexpr std::string_view kSigns[] = {"<=", "<", "=", "-"};
constexpr Lexicon kWide = {
    .blanks = [](std::string_view rest) { return std::min(rest.find_first_not_of(' '), rest.size()); },
    .name_character = [](std::string_view rest, bool first) -> size_t {
      return is_ascii_letter(rest[0]) || (!first && is_digit(rest[0])) ? 1 : 0;
    },
    .operators = kSigns,
    .quotes = "'\"",
    .groups_digits = true,
    .bare_point = true};

constexpr Lexicon narrow() {
  Lexicon lexicon = kWide;
  lexicon.groups_digits = lexicon.bare_point = false;
  return lexicon;
}
constexpr Lexicon kNarrow = narrow();

std::string number_in(std::string_view text, const Lexicon& lexicon) {
  return std::string(Scanner(text, lexicon).take_number());
}

TEST(Scanner, ANumberEndsBeforeWhatTheLanguageDoesNotHave) {
  for (const auto& [text, wide, is_narrow] : {std::tuple{"12", "12", "12"},
                                              {"1.5e-3x", "1.5e-3", "1.5e-3"},
                                              {"1e", "1", "1"},
                                              {"1e+", "1", "1"},
                                              {"1E2", "1E2", "1E2"},
                                              {"1.2.3", "1.2", "1.2"},
                                              {".5", ".5", ""},
                                              {"1.", "1.", "1"},
                                              {"1.e2", "1.e2", "1"},
                                              {".", "", ""},
                                              {"..", "", ""},
                                              {"1_000", "1_000", "1"},
                                              {"1__0", "1", "1"},
                                              {"1_", "1", "1"},
                                              {"_1", "", ""},
                                              {"-1", "", ""},
                                              {"e1", "", ""}}) {
    EXPECT_EQ(number_in(text, kWide), wide) << text;
    EXPECT_EQ(number_in(text, kNarrow), is_narrow) << text;
  }
}

TEST(Scanner, AnOperatorIsNotTakenAsTheBeginningOfALongerOne) {
  Scanner scanner(" <= <", kWide);
  EXPECT_FALSE(scanner.take("<"));
  EXPECT_TRUE(scanner.take("<="));
  EXPECT_FALSE(scanner.take("<="));
  EXPECT_TRUE(scanner.take("<"));
  EXPECT_TRUE(scanner.at_end());
  EXPECT_FALSE(scanner.take("<"));
}

TEST(Scanner, AWordIsNotTakenAsTheBeginningOfAName) {
  Scanner scanner("or order or2", kWide);
  EXPECT_TRUE(scanner.take_word("or"));
  EXPECT_FALSE(scanner.take_word("or"));
  EXPECT_EQ(scanner.take_name(), "order");
  EXPECT_FALSE(scanner.take_word("or"));
  EXPECT_EQ(scanner.take_name(), "or2");
  EXPECT_EQ(scanner.take_name(), "");
}

TEST(Scanner, AStringEndsAtItsOwnQuoteBehindNoBackslash) {
  Scanner scanner(R"('a"b\'c\\' "d)", kWide);
  ASSERT_TRUE(scanner.at_string());
  const auto first = scanner.take_string();
  EXPECT_EQ(first.body, R"(a"b\'c\\)");
  EXPECT_TRUE(first.is_closed);
  scanner.skip_blanks();
  ASSERT_TRUE(scanner.at_string());
  const auto second = scanner.take_string();
  EXPECT_EQ(second.body, "d");
  EXPECT_FALSE(second.is_closed);
  EXPECT_TRUE(scanner.at_end());
}

TEST(Scanner, AStringThatEndsWithABackslashIsNotClosed) {
  for (const std::string_view text : {"'", "'\\", "'\\'"}) {
    Scanner scanner(text, kWide);
    const auto string = scanner.take_string();
    EXPECT_FALSE(string.is_closed) << text;
    EXPECT_EQ(string.body, text.substr(1));
    EXPECT_TRUE(scanner.at_end());
  }
}

}  // namespace
}  // namespace athanor::scanner_test
