#include "eval/token_forest.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"

namespace athanor::token_forest_test {
namespace {

using Sequences = std::vector<std::vector<int32_t>>;

std::vector<ScoredSequence> scored(const Sequences& sequences, int64_t num_scored = 1) {
  std::vector<ScoredSequence> result;
  for (const auto& tokens : sequences) result.push_back({tokens, std::min(num_scored, std::ssize(tokens) - 1)});
  return result;
}

// The tokens before and at a row, as attention sees them.
std::vector<int32_t> text_at(const TokenForest& batch, int64_t row) {
  std::vector<int32_t> text;
  const auto holds = [&](const ops::TokenTree::Node& node) { return node.begin <= row && row < node.end; };
  for (const auto* node = &*std::ranges::find_if(batch.nodes, holds);;
       node = &batch.nodes[static_cast<size_t>(node->parent)]) {
    const int64_t end = std::min(node->end, row + 1);
    text.insert(text.begin(), batch.tokens.begin() + node->begin, batch.tokens.begin() + end);
    if (node->parent < 0) return text;
    row = batch.nodes[static_cast<size_t>(node->parent)].end - 1;
  }
}

// Every prediction is made after the tokens of its sequence that come before it, and every sequence is there once.
void expect_whole(const std::vector<TokenForest>& batches, const std::vector<ScoredSequence>& sequences) {
  std::multiset<int64_t> there;
  for (const TokenForest& batch : batches) {
    ops::make_tree(batch.nodes);  // asserts their order
    ASSERT_EQ(batch.nodes.back().end, std::ssize(batch.tokens));
    ASSERT_EQ(batch.rows.size(), batch.targets.size());
    for (const auto& [index, begin, count] : batch.members) {
      there.insert(index);
      const ScoredSequence& sequence = sequences[static_cast<size_t>(index)];
      ASSERT_EQ(count, sequence.num_scored);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t length = std::ssize(sequence.tokens) - count + i;
        const auto before = sequence.tokens.first(static_cast<size_t>(length));
        EXPECT_EQ(text_at(batch, batch.rows[static_cast<size_t>(begin + i)]),
                  std::vector<int32_t>(before.begin(), before.end()));
        EXPECT_EQ(batch.targets[static_cast<size_t>(begin + i)], sequence.tokens[static_cast<size_t>(length)]);
      }
    }
  }
  std::multiset<int64_t> all;
  for (int64_t i = 0; i < std::ssize(sequences); ++i) all.insert(i);
  EXPECT_EQ(there, all);
}

std::vector<int32_t> range(int32_t first, int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(TokenForest, AContextOfFourAnswersIsComputedOnce) {
  const auto context = range(100, 50);
  const Sequences texts = {joined(context, {1, 2, 3}), joined(context, {4, 5}), joined(context, {1, 9, 9, 9}),
                           joined(context, {7})};
  const auto sequences = scored(texts, 3);
  const auto batches = pack_sequences(sequences, 1000);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].tokens.size(), 50u + 2 + 1 + 3);
  expect_whole(batches, sequences);
}

TEST(TokenForest, AnswersOfOneTokenReadTheSameRow) {
  const auto context = range(100, 30);
  const Sequences texts = {joined(context, {1}), joined(context, {2}), joined(context, {3})};
  const auto sequences = scored(texts);
  const auto batches = pack_sequences(sequences, 1000);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_EQ(batches[0].tokens.size(), 30u);
  EXPECT_EQ(batches[0].rows, (std::vector<int32_t>{29, 29, 29}));
  expect_whole(batches, sequences);
}

TEST(TokenForest, FewShotExamplesCostOnceForEachBatch) {
  const auto examples = range(1000, 300);
  Sequences texts;
  for (int32_t question = 0; question < 40; ++question) {
    for (int32_t answer = 0; answer < 4; ++answer)
      texts.push_back(joined(joined(examples, range(question * 100, 60)), {answer, 5}));
  }
  const auto sequences = scored(texts, 2);
  const auto batches = pack_sequences(sequences, 1000);
  EXPECT_EQ(batches.size(), 4u);  // (1000 − 300) / (60 + 4) questions each
  for (const TokenForest& batch : batches) EXPECT_LE(batch.tokens.size(), 1000u);
  expect_whole(batches, sequences);
}

TEST(TokenForest, ALongerSequenceThanTheBudgetIsAlone) {
  const Sequences texts = {range(0, 50), range(100, 5), range(200, 5)};
  const auto sequences = scored(texts, 4);
  const auto batches = pack_sequences(sequences, 20);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].tokens.size(), 49u);
  expect_whole(batches, sequences);
}

TEST(TokenForest, DrawnSequencesAreWholeWithEveryBudget) {
  const CounterRandom random(7, "token forest");
  uint64_t drawn = 0;
  const auto draw = [&](uint64_t below) { return static_cast<int32_t>(random.u64(drawn++) % below); };
  for (int round = 0; round < 60; ++round) {
    Sequences texts;
    const int32_t kinds = 1 + draw(3);
    for (int i = 1 + draw(40); i > 0; --i) {
      std::vector<int32_t> text;
      for (int pieces = 1 + draw(4); pieces > 0; --pieces)
        text = joined(std::move(text), range(100 * draw(static_cast<uint64_t>(kinds)), 1 + draw(25)));
      text.push_back(draw(3));
      texts.push_back(std::move(text));
    }
    const auto sequences = scored(texts, 1 + draw(6));
    for (const int64_t budget : {1, 30, 100, 100000}) expect_whole(pack_sequences(sequences, budget), sequences);
  }
}

TEST(TokenForest, OfNothingIsNothing) { EXPECT_TRUE(pack_sequences({}, 100).empty()); }

}  // namespace
}  // namespace athanor::token_forest_test
