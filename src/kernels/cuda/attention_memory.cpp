#include "kernels/cuda/attention_memory.h"

namespace athanor::kernels::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t whole(int64_t count, int64_t each) { return (count + each - 1) / each; }

}  // namespace

int64_t flash_backward_bytes(const AttentionShape& shape, bool has_fixed_order) {
  constexpr int64_t kRows = 128, kMultiprocessors = 132;
  const int64_t rows = shape.documents > 0 ? shape.tokens() + kRows * shape.documents
                                           : shape.sequences * whole(shape.seq_len, kRows) * kRows;
  const int64_t columns = shape.head_dim <= 128 ? 32 : 64, wide = whole(shape.head_dim, columns) * columns;
  const int64_t copies = has_fixed_order ? whole(kMultiprocessors, shape.parts() * shape.heads) : 1;
  const int64_t sums = kFloat * shape.heads * rows;
  const int64_t of_query_heads =
      shape.kv_heads == shape.heads ? 0 : 2 * 2 * shape.tokens() * shape.heads * shape.head_dim;
  return sums + copies * sums * wide + of_query_heads;
}

EfficientBytes efficient_backward_bytes(const AttentionShape& shape) {
  constexpr int64_t kColumns = 64;
  const int64_t rows = shape.head_dim > 64 ? 128 : 64, sums = kFloat * shape.tokens() * shape.heads;
  const int64_t tile = 4 + rows * kColumns;  // its lock and counter come first
  const int64_t of_keys = shape.is_bf16 ? 2 * kColumns * whole(shape.head_dim, rows) * rows : 0;
  const int64_t each = whole(shape.seq_len, rows) * whole(shape.head_dim, kColumns) * tile + of_keys;
  return {shape.is_bf16 ? 0 : sums * (shape.head_dim + 2), sums + shape.parts() * shape.heads * each * kFloat};
}

int64_t efficient_rows(int64_t seq_len) {
  constexpr int64_t kRows = 32;
  return whole(seq_len, kRows) * kRows;
}

}  // namespace athanor::kernels::cuda
