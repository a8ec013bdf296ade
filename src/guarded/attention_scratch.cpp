#include "guarded/attention_scratch.h"

#include <ATen/ops/empty.h>

#include <vector>

namespace athanor::guarded {
namespace {

using at::Tensor;

int64_t whole(int64_t count, int64_t each) { return (count + each - 1) / each; }

Tensor floats(const Tensor& like, const std::vector<int64_t>& sizes) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}

}  // namespace

void allocate_flash_scratch(const Tensor& q, const Tensor& k, const Tensor& offsets, bool has_fixed_order) {
  constexpr int64_t kBlock = 128, kMultiprocessors = 132;
  const int64_t heads = q.size(-2), dim = q.size(-1), wide = dim <= 128 ? whole(dim, 32) * 32 : whole(dim, 64) * 64;
  const int64_t batch = offsets.defined() ? offsets.numel() - 1 : q.size(0);
  const int64_t rows = offsets.defined() ? q.size(0) + kBlock * batch : batch * whole(q.size(1), kBlock) * kBlock;
  const int64_t splits = has_fixed_order ? whole(kMultiprocessors, batch * heads) : 1;
  const Tensor softmax_d = floats(q, {heads, rows}), dq_accum = floats(q, {splits, rows, heads, wide});
  if (k.size(-2) == heads) return;
  const Tensor dk_expanded = at::empty(q.sizes(), q.options()), dv_expanded = at::empty(q.sizes(), q.options());
}

void allocate_efficient_scratch(const Tensor& q, const Tensor& offsets, int64_t longest) {
  constexpr int64_t kBlockJ = 64;
  const bool wide = q.scalar_type() == at::kFloat;
  const int64_t heads = q.size(2), dim = q.size(3), block_i = dim > 64 ? 128 : 64;
  if (wide) {
    const Tensor product = floats(q, {q.numel()}), sum = floats(q, {q.numel() / dim}),
                 dense = floats(q, sum.sizes().vec());
  }
  const Tensor delta = floats(q, {q.numel() / dim});
  const int64_t batches = offsets.defined() ? offsets.numel() - 1 : q.size(0);
  const int64_t tile = 4 + block_i * kBlockJ;  // its lock and counter come first
  const int64_t of_keys = wide ? 0 : 2 * kBlockJ * whole(dim, block_i) * block_i;
  const int64_t each = whole(longest, block_i) * whole(dim, kBlockJ) * tile + of_keys;
  const Tensor workspace = floats(q, {batches * heads * each});
}

}  // namespace athanor::guarded
