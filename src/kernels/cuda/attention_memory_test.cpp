#include "kernels/cuda/attention_memory.h"

#include <gtest/gtest.h>

namespace athanor::kernels::cuda {
namespace {

// 2 sequences of 300 tokens: 384 each. 4 heads in 2 sequences leave 132 / 8 = 16.5 multiprocessors for each.
TEST(AttentionMemory, FlashTakesRowsOf128AndACopyOfTheGradientForEachBlockThatWouldBeFree) {
  AttentionShape shape{.sequences = 2, .seq_len = 300, .heads = 4, .kv_heads = 4, .head_dim = 40};
  EXPECT_EQ(flash_backward_bytes(shape), 4 * 4 * 768 + 17 * 4 * 4 * 768 * 64);
  EXPECT_EQ(flash_backward_bytes(shape, /*has_fixed_order=*/false), 4 * 4 * 768 + 4 * 4 * 768 * 64);
  shape.head_dim = 136;  // in multiples of 64
  EXPECT_EQ(flash_backward_bytes(shape), 4 * 4 * 768 + 17 * 4 * 4 * 768 * 192);
  shape.heads = 128;  // more blocks than multiprocessors: one copy; 128 query heads of 4 key heads
  EXPECT_EQ(flash_backward_bytes(shape), 4 * 128 * 768 + 4 * 128 * 768 * 192 + 2 * 2 * 600 * 128 * 136);
}

// 8 sequences of 512: room for 32 documents, and 33 in the table.
TEST(AttentionMemory, FlashTakesAnother128RowsForEachDocumentOfTheTables) {
  const AttentionShape shape{
      .sequences = 8, .seq_len = 512, .heads = 16, .kv_heads = 16, .head_dim = 128, .documents = 33};
  const int64_t rows = 4096 + 128 * 33;
  EXPECT_EQ(flash_backward_bytes(shape), 4 * 16 * rows + 4 * 16 * rows * 128);
}

// 2 sequences of 100 tokens: two tiles of 64 rows, or one of 128; each has 64 columns.
TEST(AttentionMemory, TheMemoryEfficientKernelTakesTilesForTheLongestDocumentInEach) {
  AttentionShape shape{.sequences = 2, .seq_len = 100, .heads = 4, .kv_heads = 4, .head_dim = 48, .is_bf16 = false};
  EXPECT_EQ(efficient_backward_bytes(shape).rest, 4 * 200 * 4 + 2 * 4 * (2 * (16 + 4 * 64 * 64)));
  EXPECT_EQ(efficient_rows(100), 128);
  shape.documents = 3;
  EXPECT_EQ(efficient_backward_bytes(shape).rest, 4 * 200 * 4 + 3 * 4 * (2 * (16 + 4 * 64 * 64)));
  shape.head_dim = 100;
  EXPECT_EQ(efficient_backward_bytes(shape).rest, 4 * 200 * 4 + 3 * 4 * (2 * (16 + 4 * 128 * 64)));
}

// The product from which the sums are formed has the size of one sequence, and the sums exist twice then.
TEST(AttentionMemory, InFp32TheMemoryEfficientKernelFormsTheSumsFirst) {
  const AttentionShape shape{
      .sequences = 1, .seq_len = 128, .heads = 1, .kv_heads = 1, .head_dim = 128, .is_bf16 = false};
  EXPECT_EQ(efficient_backward_bytes(shape).forming_sums, 4 * 128 * 128 + 2 * 4 * 128);
}

// Heads of 264 elements have five columns of tiles, and blocks for the gradients of 64 keys and values: 384 of each.
TEST(AttentionMemory, InBf16TheMemoryEfficientKernelTakesBlocksForKeysAndValuesToo) {
  const AttentionShape shape{.sequences = 1, .seq_len = 128, .heads = 2, .kv_heads = 2, .head_dim = 264};
  EXPECT_EQ(efficient_backward_bytes(shape).forming_sums, 0);
  EXPECT_EQ(efficient_backward_bytes(shape).rest, 4 * 128 * 2 + 2 * (5 * (16 + 4 * 128 * 64) + 4 * 2 * 64 * 384));
}

}  // namespace
}  // namespace athanor::kernels::cuda
