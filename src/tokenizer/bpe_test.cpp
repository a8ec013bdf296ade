#include <gtest/gtest.h>

#include "base/random.h"
#include "tokenizer/testing/tokenizer_json.h"
#include "tokenizer/tokenizer.h"

namespace athanor::bpe_test {
namespace {

// Returns merges of random pairs of tokens over three letters, so that many ranks compete in every word.
nlohmann::json random_merges(const CounterRandom& random, uint64_t seed) {
  auto file = byte_tokenizer_json();
  auto& vocab = file["model"]["vocab"];
  std::vector<std::string> tokens{"a", "b", "c"};
  auto merges = nlohmann::json::array();
  for (uint64_t i = 0; i < 60; ++i) {
    const auto& left = tokens[random.below(seed * 1000 + 2 * i, tokens.size())];
    const auto& right = tokens[random.below(seed * 1000 + 2 * i + 1, tokens.size())];
    const auto joined = left + right;
    if (joined.size() > 40) continue;
    merges.push_back({left, right});
    if (vocab.contains(joined)) continue;
    vocab[joined] = vocab.size();
    tokens.push_back(joined);
  }
  file["model"]["merges"] = merges;
  return file;
}

TEST(BpeMerge, ShortAndLongWordsMergeAsThePlainLoopDoes) {
  const CounterRandom random(1, "merges");
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto json = random_merges(random, seed).dump();
    const auto fast = Tokenizer::parse(json, "t.json"), plain = Tokenizer::parse(json, "t.json", true);
    for (const size_t length : {1, 2, 3, 7, 23, 24, 47, 48, 49, 63, 64, 65, 66, 200, 700}) {
      std::string word;
      for (size_t i = 0; i < length; ++i) word += "aabc"[random.below((seed << 32) + length * 1000 + i, 4)];
      ASSERT_EQ(fast.encode(word), plain.encode(word)) << "merges " << seed << ", " << word;
    }
  }
}

// Quadratic merging would take hours.
TEST(BpeMerge, AMegabyteWithoutASpaceIsMerged) {
  auto file = byte_tokenizer_json({"aaaaaaaa", "ab", "ba"});
  file["model"]["merges"] = {"a a", "aa aa", "aaaa aaaa", "a b", "b a"};
  const auto tokenizer = Tokenizer::parse(file.dump(), "t.json");
  const auto id = [&](const char* token) { return *tokenizer.token_to_id(token); };
  constexpr size_t kLength = size_t{1} << 20;
  EXPECT_EQ(tokenizer.encode(std::string(kLength, 'a')), std::vector<uint32_t>(kLength / 8, id("aaaaaaaa")));
  std::string alternating;
  while (alternating.size() < kLength) alternating += "ab";
  EXPECT_EQ(tokenizer.encode(alternating), std::vector<uint32_t>(kLength / 2, id("ab")));
}

}  // namespace
}  // namespace athanor::bpe_test
