#include "tokenizer/bpe_trainer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/random.h"
#include "tokenizer/tokenizer.h"

namespace athanor::bpe_trainer_test {
namespace {

using nlohmann::json;

json train(const std::string& text, const BpeTraining& training) {
  WordCounts words;
  words.add(text);
  return json::parse(train_bpe(words, training));
}

std::vector<std::string> merges_of(const json& file) { return file["model"]["merges"]; }

TEST(BpeTrainer, JoinsTheMostFrequentPairAndOfEqualOnesTheLowest) {
  // "ab" occurs 4 times, three of them after a space; then "cd" and "xy" twice each, c before x. "abc" occurs in " abc"
  // once.
  const auto file = train("abc ab abcd zcd xy xyz abq", {.vocab_size = 262, .special_tokens = {}, .min_frequency = 2});
  EXPECT_EQ(merges_of(file), (std::vector<std::string>{"a b", "Ġ ab", "c d", "x y", "Ġ xy"}));
}

TEST(BpeTrainer, OverlappingPairsAreCountedAsTheyAreJoined) {
  // aaaa has the pair a a three times, and is aa aa afterwards.
  const auto file = train("aaaa aaaa", {.vocab_size = 300, .special_tokens = {}, .min_frequency = 2});
  EXPECT_EQ(merges_of(file), (std::vector<std::string>{"a a", "aa aa"}));
}

TEST(BpeTrainer, StopsAtTheVocabularySizeAndAtTheFrequency) {
  const std::string text = "low lower lowest low low newer newest";
  EXPECT_EQ(train(text, {.vocab_size = 259, .min_frequency = 1})["model"]["vocab"].size(), 259u);
  const auto file = train(text, {.vocab_size = 10000, .min_frequency = 5});
  EXPECT_EQ(merges_of(file), (std::vector<std::string>{"l o", "lo w"}));
}

TEST(BpeTrainer, SpecialTokensComeFirstAndAllBytesHaveATokenAndTextComesBack) {
  const auto text = "the cat and the dog";
  WordCounts words;
  words.add(text);
  const auto json_text = train_bpe(words, {.vocab_size = 270, .special_tokens = {"<|endoftext|>", "<|pad|>"}});
  const auto tokenizer = Tokenizer::parse(json_text, "trained");
  EXPECT_EQ(tokenizer.token_to_id("<|endoftext|>"), 0u);
  EXPECT_EQ(tokenizer.token_to_id("<|pad|>"), 1u);
  EXPECT_EQ(tokenizer.encode("<|pad|>"), std::vector<uint32_t>{1});
  const std::string strange = "漢 é\u0301\n\t\U0001F600 the cat";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(strange)), strange);
  EXPECT_LT(tokenizer.encode(text).size(), std::string(text).size());
}

TEST(BpeTrainer, TheOrderOfTheTextsDoesNotMatter) {
  const CounterRandom random(1, "train");
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < 500; ++i) {
    std::string text;
    for (uint64_t j = 0; j < 40; ++j) text += "aeiou strnl"[random.below(i * 40 + j, 11)];
    texts.push_back(text);
  }
  WordCounts forward, backward;
  for (const auto& text : texts) forward.add(text);
  for (auto text = texts.rbegin(); text != texts.rend(); ++text) backward.add(*text);
  const BpeTraining training{.vocab_size = 600};
  EXPECT_EQ(train_bpe(forward, training), train_bpe(backward, training));
}

TEST(BpeTrainer, WhatCannotBeTrainedIsRefusedWithTheReason) {
  const auto complaint = [](const BpeTraining& training) -> std::string {
    try {
      check_bpe_training(training);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no complaint";
  };
  EXPECT_EQ(complaint({.vocab_size = 256}), "vocab-size (256) must be at least 257: 256 bytes and 1 special tokens");
  EXPECT_EQ(complaint({.vocab_size = 999, .special_tokens = {"a", "<x>"}}),
            "the special token \"a\" is the name of a byte; choose a longer text");
  EXPECT_EQ(complaint({.vocab_size = 999, .special_tokens = {"<x>", "<x>"}}),
            "the special token \"<x>\" is there twice");
  EXPECT_TRUE(complaint({.vocab_size = 999, .special_tokens = {""}}).starts_with("a special token is empty"));
  WordCounts words;
  EXPECT_THROW(words.add("a\xFF"), DataError);
}

}  // namespace
}  // namespace athanor::bpe_trainer_test
