#include "checkpoint/hf_layout.h"

#include <gtest/gtest.h>

namespace athanor::hf_layout_test {
namespace {

// Where the element of row r and column c lies in its tensor.
int64_t place(const HfPart& part, int64_t r, int64_t c) {
  return part.at + r * part.row_stride + c * part.column_stride;
}

ParameterSpec matrix(int64_t rows, int64_t columns, FileForm form) {
  return {.name = "k_proj.weight", .shape = {rows, columns}, .role = Role::kKey, .layer = 0, .form = std::move(form)};
}

TEST(HfParts, AMatrixOfItsOwnLiesAsItIs) {
  const HfPart part = hf_parts(matrix(2, 3, {})).at(0);
  EXPECT_EQ(part.tensor, "k_proj.weight");
  EXPECT_EQ(part.shape, (Shape{2, 3}));
  EXPECT_TRUE(part.is_contiguous());
}

TEST(HfParts, AFusedMatrixIsRowsOfTheTensor) {
  const HfPart part = hf_parts(matrix(2, 3, {.fused = "qkv.weight", .first_row = 4, .rows = 8})).at(0);
  EXPECT_EQ(part.tensor, "qkv.weight");
  EXPECT_EQ(part.shape, (Shape{8, 3}));
  EXPECT_TRUE(part.is_contiguous());
  EXPECT_EQ(place(part, 1, 2), (4 + 1) * 3 + 2);
}

TEST(HfParts, AFusedAndTransposedMatrixIsColumnsOfTheTensor) {
  const HfPart part =
      hf_parts(matrix(2, 3, {.fused = "c_attn.weight", .first_row = 4, .rows = 8, .transposed = true})).at(0);
  EXPECT_EQ(part.shape, (Shape{3, 8}));
  EXPECT_FALSE(part.is_contiguous());
  EXPECT_EQ(place(part, 1, 2), 2 * 8 + 4 + 1);
}

TEST(HfParts, AFusedBiasIsARangeOfTheTensor) {
  ParameterSpec bias = matrix(2, 1, {.fused = "c_attn.bias", .first_row = 4, .rows = 8});
  bias.shape = {2};
  const HfPart part = hf_parts(bias).at(0);
  EXPECT_EQ(part.shape, (Shape{8}));
  EXPECT_EQ(place(part, 1, 0), 5);
}

TEST(HfParts, HeadsOfATensorWithAllThreeAreEachInTheirPlace) {
  // Two heads of four outputs: query, key and value of the first, then those of the second. This is the key.
  const auto parts =
      hf_parts(matrix(8, 3, {.fused = "qkv.weight", .first_row = 4, .rows = 24, .heads = 2, .head_step = 12}));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].first, 0);
  EXPECT_EQ(parts[0].at, 4 * 3);
  EXPECT_EQ(parts[0].rows, 4);
  EXPECT_EQ(parts[1].first, 4 * 3);
  EXPECT_EQ(parts[1].at, (12 + 4) * 3);
}

TEST(HfParts, TurnedDimsOfAHeadComeFirstInFilesAndLieInBothHalvesHere) {
  // A head of eight of which four are turned: 0 with 2 and 1 with 3 in the file, 0 with 4 and 1 with 5 here.
  std::vector<int64_t> place(8);
  for (const HfPart& part : hf_parts(matrix(8, 1, {.fused = "", .heads = 1, .head_step = 8, .rotated = 4})))
    for (int64_t i = 0; i < part.rows; ++i) place[static_cast<size_t>(part.first + i)] = part.at + i;
  EXPECT_EQ(place, (std::vector<int64_t>{0, 1, 4, 5, 2, 3, 6, 7}));
}

// Two experts of three inputs and four outputs, every second column of a tensor that is [experts, inputs, 8].
TEST(HfParts, StackedExpertsLieInTurnsWithOthersInTheColumnsOfATensor) {
  const FileForm form{
      .fused = "experts.gate_up_proj", .first_row = 1, .rows = 8, .transposed = true, .stacked = true, .row_step = 2};
  const ParameterSpec up{.name = "experts.up_proj.weight",
                         .shape = {2, 4, 3},
                         .role = Role::kExpertUp,
                         .layer = 0,
                         .sharded = {.tensor = 1, .expert = 0},
                         .form = form};
  const auto parts = hf_parts(up);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].shape, (Shape{2, 3, 8}));
  EXPECT_EQ(parts[1].first, 4 * 3);
  EXPECT_EQ(place(parts[1], 2, 1), 1 * 3 * 8 + 1 * 8 + (1 + 2 * 2));
  ParameterSpec bias = up;
  bias.shape = {2, 4};
  bias.form.transposed = false;
  const HfPart of_bias = hf_parts(bias).at(1);
  EXPECT_EQ(of_bias.shape, (Shape{2, 8}));
  EXPECT_EQ(place(of_bias, 3, 0), 8 + 1 + 2 * 3);
  EXPECT_TRUE(hf_stacked_parts(up).empty()) << "this is the form in which it is written";
}

}  // namespace
}  // namespace athanor::hf_layout_test
