// Labels that are drawn from logits: their distribution, and that no cut of rows or vocabulary changes them.

#include "ops/label_draw.h"

#include "kernels/cross_entropy.h"
#include "kernels/label_draw.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::label_draw_test {
namespace {

using namespace test;

Tensor targets_of(int64_t rows) { return at::zeros({rows}, at::kLong); }

TEST(LabelDraw, FrequenciesAreTheSoftmax) {
  constexpr int64_t kRows = 200'000;
  const Tensor logits = at::tensor({0.0f, 1.0f, -2.0f, 3.0f, 0.5f, -9.0f}).repeat({kRows, 1});
  const Tensor labels = labels_of(logits, targets_of(kRows), {true, 7, 0});
  const Tensor counts = at::bincount(labels, {}, 6).to(at::kDouble);
  const Tensor expected = logits[0].to(at::kDouble).softmax(0) * kRows;
  for (int64_t v = 0; v < 6; ++v) {
    const double mean = expected[v].item<double>();  // binomial: 5 standard deviations are passed once in 10⁶
    EXPECT_NEAR(counts[v].item<double>(), mean, 5 * std::sqrt(mean) + 1) << v;
  }
}

TEST(LabelDraw, TheFastFormDrawsWhatAllLogarithmsGive) {
  for (const auto dtype : kComputeTypes) {
    const int64_t rows = 40, vocab = 1'003;
    const Tensor logits = normal({rows, vocab}, 5, dtype) * 6, targets = targets_of(rows);
    const LabelDraw draw{true, 0x123456789ABCDEF0u, 77};
    const auto numbers = [&] { return std::pair(at::empty({rows}), at::empty({rows}, at::kLong)); };
    const auto [value, id] = numbers();
    const auto [slow_value, slow_id] = numbers();
    draw_labels_into({logits, targets, 0}, draw, vocab, value, id);
    portable::draw_labels_into({logits, targets, 0}, draw, vocab, slow_value, slow_id);
    expect_same_bits(id, slow_id, "ids");
    expect_same_bits(value, slow_value, "values");
  }
}

TEST(LabelDraw, NeitherRowsNorCutsOfTheVocabularyChangeALabel) {
  const int64_t rows = 30, vocab = 500;
  const Tensor logits = normal({rows, vocab}, 6) * 3, targets = targets_of(rows);
  targets[4] = kernels::kNoTarget;
  const LabelDraw draw{true, 99, 1000};
  const Tensor whole = labels_of(logits, targets, draw);
  EXPECT_EQ(whole[4].item<int64_t>(), kernels::kNoTarget);
  for (const int64_t begin : {1, 13, 29})
    expect_same_bits(labels_of(logits.narrow(0, begin, rows - begin).contiguous(),
                               targets.narrow(0, begin, rows - begin), draw.from_row(begin)),
                     whole.narrow(0, begin, rows - begin), "rows");
  for (const int64_t cut : {0, 1, 250, 499}) {
    std::vector<Tensor> values, ids;
    for (const auto& [first, width] : {std::pair(int64_t{0}, cut), {cut, vocab - cut}}) {
      values.push_back(at::empty({rows}));
      ids.push_back(at::empty({rows}, at::kLong));
      draw_labels_into({logits.narrow(1, first, width).contiguous(), targets, first}, draw, vocab, values.back(),
                       ids.back());
    }
    expect_same_bits(at::where(values[0] >= values[1], ids[0], ids[1]), whole, "vocabulary");
  }
  EXPECT_FALSE(at::equal(labels_of(logits, targets, {true, 100, 1000}), whole));
  EXPECT_TRUE(at::equal(labels_of(logits, targets, {}), targets));
}

TEST(LabelDraw, WhatIsDrawnIsRecordedAtItsRowsAndGivenLabelsTakeItsPlace) {
  const int64_t rows = 10, vocab = 50, all = 40;
  const Tensor logits = normal({rows, vocab}, 8), targets = targets_of(rows);
  targets[3] = kernels::kNoTarget;
  const LabelDraw plain{true, 5, 20};
  const auto record = std::make_shared<DrawnLabels>();
  record->drawn = at::full({all}, -1, at::kLong);
  LabelDraw recorded = plain;
  recorded.record = record;
  const Tensor drawn = labels_of(logits, targets, plain);
  expect_same_bits(labels_of(logits.narrow(0, 4, 6).contiguous(), targets.narrow(0, 4, 6), recorded.from_row(4)),
                   drawn.narrow(0, 4, 6), "labels");
  expect_same_bits(record->drawn.narrow(0, 24, 6), drawn.narrow(0, 4, 6), "recorded");
  EXPECT_EQ(record->drawn.eq(-1).sum().item<int64_t>(), all - 6);
  record->given = at::arange(all);
  expect_same_bits(labels_of(logits, targets, recorded), record->given.narrow(0, 20, rows), "given");
  expect_same_bits(record->drawn.narrow(0, 20, rows), drawn, "recorded though others are given");
}

}  // namespace
}  // namespace athanor::ops::label_draw_test
