#include "eval/continued_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tokenizer/testing/tokenizer_json.h"

namespace athanor::continued_text_test {

// What new tokens add to a prompt is what decoding all of them shows behind it.

namespace {

using nlohmann::json;
using Ids = std::vector<uint32_t>;

std::string continued(const Tokenizer& tokenizer, const Ids& prompt, const Ids& added) {
  ContinuedText text(tokenizer, prompt);
  std::string all;
  for (const uint32_t id : added) all += text.push(id);
  return all + text.finish();
}

Tokenizer words(const json& decoder) {
  const json file{
      {"added_tokens", json::array()},
      {"decoder", decoder},
      {"model",
       {{"type", "BPE"}, {"vocab", {{"▁a", 0}, {"▁b", 1}, {"c</w>", 2}, {"d</w>", 3}}}, {"merges", json::array()}}}};
  return Tokenizer::parse(file.dump(), "words");
}

TEST(ContinuedText, KeepsTheSpaceBeforeTheFirstNewWord) {
  const json metaspace{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}};
  EXPECT_EQ(continued(words(metaspace), {0}, {1, 0}), " b a");
  const json parts = {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                      {{"type", "Fuse"}},
                      {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}};
  EXPECT_EQ(continued(words({{"type", "Sequence"}, {"decoders", parts}}), {0}, {1}), " b");
}

TEST(ContinuedText, ShowsNothingOfAPromptWhoseLastTokenIsDecodedWithTheNext) {
  const Tokenizer tokenizer = words({{"type", "BPEDecoder"}, {"suffix", "</w>"}});
  EXPECT_EQ(continued(tokenizer, {2}, {3, 2}), " d c");
  EXPECT_EQ(continued(tokenizer, {2}, {}), "");
}

TEST(ContinuedText, ShowsAllOfACharacterThatThePromptBegins) {
  const Tokenizer bytes = Tokenizer::parse(byte_tokenizer_json().dump(), "bytes");
  EXPECT_EQ(continued(bytes, {97, 0xC3}, {0xA9, 98}), "éb");
  EXPECT_EQ(continued(bytes, {97, 0xC3}, {98}), "b");
  EXPECT_EQ(continued(bytes, {}, {97}), "a");
}

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

}  // namespace athanor::continued_text_test
