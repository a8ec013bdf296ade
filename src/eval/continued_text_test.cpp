// What new tokens add to a prompt is what decoding all of them shows behind it.
#include "eval/continued_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tokenizer/testing/tokenizer_json.h"

namespace athanor::continued_text_test {
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

}  // namespace
}  // namespace athanor::continued_text_test
