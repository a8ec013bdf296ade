#include "eval/stop_strings.h"

#include <gtest/gtest.h>

namespace athanor::stop_strings_test {
namespace {

struct Result {
  std::string text;
  std::optional<std::string> found;
  bool operator==(const Result&) const = default;
};

// Pushes the text in pieces whose ends are the bits of `cuts`.
Result in_pieces(const std::string& text, const std::vector<std::string>& stops, unsigned cuts) {
  StopFilter filter(stops);
  Result result;
  std::string piece;
  for (size_t i = 0; i < text.size(); ++i) {
    piece += text[i];
    if (i + 1 < text.size() && !(cuts >> i & 1)) continue;
    result.text += filter.push(piece);
    piece.clear();
  }
  result.text += filter.finish();
  result.found = filter.found();
  return result;
}

void expect_for_each_cut(const std::string& text, const std::vector<std::string>& stops, const Result& expected) {
  for (unsigned cuts = 0; cuts < 1u << (text.size() - 1); ++cuts)
    EXPECT_EQ(in_pieces(text, stops, cuts), expected) << text << " cut " << cuts;
}

TEST(StopFilter, EndsATextBeforeTheFirstStopStringHoweverItIsCutIntoPieces) {
  expect_for_each_cut("one. two", {"."}, {"one", "."});
  expect_for_each_cut("abcabd ab", {"abd"}, {"abc", "abd"});
  expect_for_each_cut("aaab", {"aab"}, {"a", "aab"});
  expect_for_each_cut("xyz", {"xyz"}, {"", "xyz"});
  expect_for_each_cut("xabcde", {"abcd", "bc"}, {"xa", "bc"});  // complete first
  expect_for_each_cut("xabcde", {"c", "abc"}, {"x", "abc"});    // complete together: the longest
  expect_for_each_cut("ab\nc\n\n", {"\n\n"}, {"ab\nc", "\n\n"});
}

TEST(StopFilter, PassesATextWithoutAStopStringOnWhole) {
  expect_for_each_cut("abcabca", {"abcd", "cc"}, {"abcabca", std::nullopt});
  expect_for_each_cut("abcabca", {}, {"abcabca", std::nullopt});
}

TEST(StopFilter, ShowsNoByteOfAStopStringAndHoldsNothingElseBack) {
  StopFilter filter({"STOP", "T!"});
  EXPECT_EQ(filter.push("go S"), "go ");
  EXPECT_EQ(filter.push("T"), "");
  EXPECT_EQ(filter.push("x"), "STx");
  EXPECT_EQ(filter.push("STO"), "");
  EXPECT_EQ(filter.push("P and more"), "");
  EXPECT_EQ(filter.push("more"), "");
  EXPECT_EQ(filter.finish(), "");
}

}  // namespace
}  // namespace athanor::stop_strings_test
