#include "ops/device/library_attention.h"

#include <gtest/gtest.h>

#include "guarded/device.h"
#include "ops/document_tables.h"

namespace athanor::ops::library_attention_test {
namespace {

using device::attention_form;
using device::AttentionForm;

// Returns the form that is chosen if the device has these kernels.
AttentionForm chosen(at::ScalarType dtype, int64_t head_dim, int64_t documents, std::vector<AttentionForm> kernels,
                     const AttentionOptions& options = {}) {
  return attention_form(dtype, head_dim, documents, options,
                        [&](AttentionForm form) { return std::ranges::find(kernels, form) != kernels.end(); });
}

TEST(AttentionForm, IsTheFirstThatTakesTheTypeTheHeadsAndTheNumberOfDocuments) {
  using enum AttentionForm;
  const std::vector<AttentionForm> both = {kFlash, kEfficient}, flash = {kFlash}, efficient = {kEfficient}, none;
  for (const int64_t head_dim : {8, 64, 128, 256}) {
    EXPECT_EQ(chosen(at::kBFloat16, head_dim, 1, both), kFlash);
    EXPECT_EQ(chosen(at::kBFloat16, head_dim, 65535, flash), kFlash);
    EXPECT_EQ(chosen(at::kBFloat16, head_dim, 1, efficient), kEfficient);
    EXPECT_EQ(chosen(at::kBFloat16, head_dim, 1, none), kSpans);
    EXPECT_EQ(chosen(at::kFloat, head_dim, 1, both), kEfficient);
    EXPECT_EQ(chosen(at::kFloat, head_dim, 1, flash), kSpans);
    EXPECT_EQ(chosen(at::kBFloat16, head_dim, 65536, both), kSpans);
  }
  EXPECT_EQ(chosen(at::kBFloat16, 264, 1, both), kEfficient);
  EXPECT_EQ(chosen(at::kBFloat16, 12, 1, both), kSpans);
  EXPECT_EQ(chosen(at::kFloat, 12, 1, both), kEfficient);
  EXPECT_EQ(chosen(at::kFloat, 6, 1, both), kSpans);
  EXPECT_EQ(chosen(at::kBFloat16, 64, 1, both, {.window = 7}), kFlash);
  EXPECT_EQ(chosen(at::kFloat, 64, 1, both, {.window = 7}), kSpans) << "the memory-efficient kernel is given no window";
  EXPECT_EQ(chosen(at::kFloat, 64, 1, both, {.scale = 0.3}), kEfficient);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) EXPECT_EQ(chosen(dtype, 64, 1, both, {.soft_cap = 50}), kSpans);
}

TEST(AttentionForm, RunsWhereItsKernelsTakeOneToken) {
  guarded::install_for_tests();
  const auto there = [](at::ScalarType dtype, int64_t head_dim) {
    return at::empty({1, 1, 1, head_dim}, at::TensorOptions(dtype).device(guarded::device_of_tests()));
  };
  EXPECT_TRUE(runs_here(AttentionForm::kFlash, there(at::kBFloat16, 16)));
  EXPECT_FALSE(runs_here(AttentionForm::kFlash, there(at::kFloat, 16)));
  EXPECT_FALSE(runs_here(AttentionForm::kFlash, there(at::kBFloat16, 12)));
  EXPECT_TRUE(runs_here(AttentionForm::kEfficient, there(at::kFloat, 12)));
  EXPECT_FALSE(runs_here(AttentionForm::kEfficient, there(at::kFloat, 6)));
  EXPECT_FALSE(runs_here(AttentionForm::kFlash, at::empty({1, 1, 1, 16}, at::kBFloat16)));
}

TEST(DocumentTables, HaveTheShapeOfAnotherBatchUnlessDocumentsAreShort) {
  EXPECT_EQ(document_room({{1024}}, 1024), 8);
  EXPECT_EQ(document_room({{100, 924}, {1024}}, 1024), 16);
  EXPECT_EQ(document_room({{16}, {16}, {8, 8}}, 16), 6);
  EXPECT_EQ(document_room({std::vector<int32_t>(1024, 1)}, 1024), 1024);
  EXPECT_EQ(document_room({}, 1024), 1);
}

TEST(DocumentTables, HoldWhereDocumentsBeginAndThePositionOfEachToken) {
  const DocumentLengths documents{{2, 0, 3}, {5}};
  for (const int64_t room : {3, 4, 9}) {
    const auto [offsets, positions] = unpack_tables(pack_tables(documents, 5, room), 2, 5);
    ASSERT_GE(offsets.numel(), room + 1);
    Tensor expected = at::full({offsets.numel()}, 10, at::kInt);
    expected.narrow(0, 0, 3).copy_(at::tensor({0, 2, 5}, at::kInt));
    EXPECT_TRUE(offsets.equal(expected)) << offsets;
    EXPECT_TRUE(positions.equal(at::tensor({0, 1, 0, 1, 2, 0, 1, 2, 3, 4}, at::kLong).view({2, 5}))) << positions;
  }
}

}  // namespace
}  // namespace athanor::ops::library_attention_test
