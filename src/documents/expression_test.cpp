#include "documents/expression.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/testing/folder_test.h"

namespace athanor::expression_test {
namespace {

bool holds(const std::string& expression, const std::string& document, const std::string& text = "") {
  const auto json = nlohmann::json::parse(document);
  return Expression::parse(expression).holds({json, "text", text});
}

std::string refused(const std::string& expression) {
  return refusal<ExpressionError>([&] { Expression::parse(expression); });
}
std::string unfit(const std::string& expression, const std::string& document) {
  return refusal<ExpressionError>([&] { holds(expression, document); });
}

TEST(Expression, ComparesNumbersStringsAndBooleans) {
  constexpr const char* kDocument = R"({"n": 3, "s": "b", "t": true, "metadata": {"length": 500}})";
  for (const char* is_true : {"n == 3",
                              "n < 3.5",
                              "n >= 3",
                              "n != 4",
                              "-n == -3",
                              "s == 'b'",
                              "s > \"a\"",
                              "t",
                              "t == true",
                              "not (n > 3)",
                              "!(n > 3)",
                              "metadata.length <= 5e2",
                              "$.metadata.length == 500",
                              ".metadata['length'] == 500",
                              "n in [1, 3]",
                              "s in ['a', \"b\"]",
                              "n + 2 * 3 == 9",
                              "(n + 2) * 3 == 15",
                              "7 - 2 - 1 == 4",
                              "8 / 4 / 2 == 1",
                              "n != 's'"}) {
    EXPECT_TRUE(holds(is_true, kDocument)) << is_true;
  }
  for (const char* is_false : {"n == '3'", "s == 3", "s in ['a']", "not t", "t != true", "n < 3 or s == 'a'"}) {
    EXPECT_FALSE(holds(is_false, kDocument)) << is_false;
  }
}

TEST(Expression, AndBindsTighterThanOrAndNotTighterThanBoth) {
  constexpr const char* kDocument = R"({"t": true, "f": false})";
  EXPECT_TRUE(holds("t or t and f", kDocument));
  EXPECT_FALSE(holds("(t or t) and f", kDocument));
  EXPECT_TRUE(holds("not f and t", kDocument));
  EXPECT_FALSE(holds("not t or f", kDocument));
  EXPECT_TRUE(holds("t || t && f", kDocument));
}

TEST(Expression, WhatIsMissingComparesWithNothing) {
  constexpr const char* kDocument = R"({"null": null, "a": {"b": [1]}})";
  for (const char* path : {"x", "null2", "a.c", "a.b.c", "a.b[1]", "a[0]", "$['null']", "a.b[0].x"}) {
    const std::string p = path;
    for (const char* op : {"==", "!=", "<", ">="}) EXPECT_FALSE(holds(p + " " + op + " 1", kDocument)) << p << op;
    EXPECT_FALSE(holds("has(" + p + ")", kDocument)) << p;
    EXPECT_FALSE(holds(p, kDocument)) << p;
    EXPECT_TRUE(holds("not " + p + " > 1", kDocument)) << p;
    EXPECT_TRUE(holds("default(" + p + ", 7) == 7", kDocument)) << p;
    EXPECT_FALSE(holds(p + " + 1 == 1", kDocument)) << p;
    EXPECT_FALSE(holds(p + " in [1]", kDocument)) << p;
    EXPECT_FALSE(holds("matches(" + p + ", '*')", kDocument)) << p;
  }
  EXPECT_FALSE(holds("1 / 0 > 0", kDocument));
  EXPECT_FALSE(holds("1 / 0 <= 0", kDocument));
  EXPECT_TRUE(holds("has(a.b[0])", kDocument));
}

TEST(Expression, FunctionsTakeTheScoresOfSpans) {
  constexpr const char* kDocument = R"({"s": [[0, 10, 0.25], [10, 30, 0.75], [30, 31, null]], "n": [1, 2, 6],
                                        "one": 5, "none": []})";
  for (const char* is_true :
       {"max(s) == 0.75",      "min(s) == 0.25", "sum(s) == 1",       "mean(s) == 0.5",    "count(s) == 3",
        "count(s > 0.5) == 1", "any(s > 0.5)",   "not any(s > 0.75)", "all(n > 0)",        "not all(n > 1)",
        "len(s) == 31",        "mean(n) == 3",   "max(one) == 5",     "count(one) == 1",   "s[1][2] == 0.75",
        "count(none) == 0",    "sum(none) == 0", "all(none > 1)",     "not any(none > 1)", "not max(none) > -1",
        "count(x) == 0",       "sum(x) == 0",    "len(x) == 0",       "all(x > 1)",        "not any(x > 1)",
        "any(s > n[0] / 2)",   "not all(s >= 0)"}) {
    EXPECT_TRUE(holds(is_true, kDocument)) << is_true;
  }
}

TEST(Expression, LengthIsInCharacters) {
  EXPECT_TRUE(holds("len(text) == 3 and text == 'añ漢'", R"({"text": "not this one"})", "añ漢"));
  EXPECT_TRUE(holds("len(spans) / len(text) > 0.5", R"({"spans": [[0, 2, 1]]})", "abc"));
}

TEST(Expression, PatternsMatchWholeStrings) {
  EXPECT_TRUE(holds("matches(url, 'http*://*.org/*')", R"({"url": "https://a.org/b"})"));
  EXPECT_FALSE(holds("matches(url, '*.org')", R"({"url": "https://a.org/b"})"));
}

TEST(Expression, WhatDoesNotFitIsRefusedWithItsPosition) {
  EXPECT_SAYS(unfit("n > 'a'", R"({"n": 1})"), "position 3: a number cannot be compared with a string");
  EXPECT_SAYS(unfit("t < true", R"({"t": true})"), "position 3: true and false are in no order");
  EXPECT_SAYS(unfit("x == 1 or l == 1", R"({"l": []})"), "position 13: a list cannot be compared");
  EXPECT_SAYS(unfit("n", R"({"n": 1})"), "position 1: this is a number, a condition is needed");
  EXPECT_SAYS(unfit("max(l) > 1", R"({"l": [1, "a"]})"), "position 5: element 1 of the list is neither a number nor");
  EXPECT_SAYS(unfit("max(l) > 1", R"({"l": [[1, 2]]})"), "position 5: element 0");
  EXPECT_SAYS(unfit("max(o) > 1", R"({"o": {}})"), "position 5: this is an object, a list is needed");
  EXPECT_SAYS(unfit("len(l) > 1", R"({"l": [1]})"), "count() gives the number");
  EXPECT_SAYS(unfit("s + 1 > 1", R"({"s": "a"})"), "position 1: this is a string, a number is needed");
  EXPECT_SAYS(unfit("matches(n, '*')", R"({"n": 1})"), "matches() takes a string");
}

TEST(Expression, WhatIsWronglyWrittenIsRefusedWithItsPosition) {
  EXPECT_SAYS(refused(""), "position 1: a value is expected, not the end");
  EXPECT_SAYS(refused("a ="), "position 3: comparing is written ==");
  EXPECT_SAYS(refused("a > "), "position 5: a value is expected, not the end");
  EXPECT_SAYS(refused("a > 1 b"), "position 7: \"b\" is not expected here");
  EXPECT_SAYS(refused("a < b < c"), "position 7: comparisons do not chain");
  EXPECT_SAYS(refused("(a > 1"), "position 7: \")\" is expected");
  EXPECT_SAYS(refused("a > 'x"), "position 5: this quote is not closed");
  EXPECT_SAYS(refused("a == 'x\\q'"), "position 8: a backslash");
  EXPECT_SAYS(refused("a + 1"), "a condition is needed");
  EXPECT_SAYS(refused("'a' and b"), "position 1: a condition is needed");
  EXPECT_SAYS(refused("top(a) > 1"), "position 1: no function top; there is all, any, count");
  EXPECT_SAYS(refused("any(a)"), "position 6: a comparison is expected");
  EXPECT_SAYS(refused("max(1) > 1"), "position 5: the name of a field is expected");
  EXPECT_SAYS(refused("a == null"), "position 6: null is a missing value");
  EXPECT_SAYS(refused("a[1.5] > 1"), "position 4: \"]\" is expected");
  EXPECT_SAYS(refused("a[99999999999] > 1"), "too large");
  EXPECT_SAYS(refused("a. > 1"), "position 3: a name is expected after the dot");
  EXPECT_SAYS(refused("a in 1"), "position 6: \"[\" is expected");
  EXPECT_SAYS(refused("a in [b]"), "position 7: a string or number is expected");
  EXPECT_SAYS(refused("1a > 1"), "ends no number");
  EXPECT_SAYS(refused("a == '\xFF'"), "invalid UTF-8");
  EXPECT_SAYS(refused("matches(a, b)"), "position 12: a pattern in quotes");
}

TEST(Expression, TooDeepOrTooLongIsRefused) {
  EXPECT_SAYS(refused(std::string(10000, '(')), "nested too deep");
  EXPECT_SAYS(refused(std::string(10000, '!') + "a"), "nested too deep");
  EXPECT_SAYS(refused("a > " + std::string(10000, '-') + "1"), "nested too deep");
  std::string sum = "0 < 1";
  for (int i = 0; i < 10000; ++i) sum += " + 1";
  EXPECT_SAYS(refused(sum), "too long");
}

TEST(Expression, TellsWhichPathsItReads) {
  const auto expression = Expression::parse("max(attributes.a__b[0]) > 1 and has($['x y'].z) or source in ['a']");
  EXPECT_EQ(expression.paths(),
            (std::vector<std::vector<std::string>>{{"attributes", "a__b"}, {"x y", "z"}, {"source"}}));
}

}  // namespace
}  // namespace athanor::expression_test
