#include "ops/master.h"

namespace athanor::ops {
namespace {

// The 16 bits of each element as int32, from 0 to 65535.
Tensor bits_of(const Tensor& x) { return x.view(at::kShort).to(at::kInt).bitwise_and_(0xFFFF); }

}  // namespace

Tensor join_master(const Tensor& weight, const Tensor& low) {
  const Tensor high = bits_of(weight);
  if (!low.defined()) return high.bitwise_left_shift(16).view(at::kFloat);
  const Tensor rest = bits_of(low);
  // In place: of a large block each copy counts (train/update_sums.h).
  return high.sub_((rest > 0x8000).to(at::kInt)).bitwise_left_shift_(16).bitwise_or_(rest).view(at::kFloat);
}

void split_master(const Tensor& values, const Tensor& weight, const Tensor& low) {
  const Tensor bits = values.contiguous().view(at::kInt);
  const Tensor stored = bits.bitwise_or((bits.bitwise_and(0x1FFFF) == 0x18000).to(at::kInt));
  weight.copy_(stored.view(at::kFloat));
  if (low.defined()) low.view(at::kShort).copy_(stored.to(at::kShort));
}

}  // namespace athanor::ops
