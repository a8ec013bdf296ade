#include "ops/update_memory.h"

#include "ops/device/on_stream.h"

namespace athanor::ops {

using kernels::Bf16;
using kernels::Masters;

bool UpdateMemory::has_kernels() const { return device::has_kernels(grad); }

Masters masters_here(const UpdateMemory& memory) {
  if (!memory.master_low.defined()) return {pointer<float>(memory.weight), nullptr, nullptr};
  return {nullptr, pointer<Bf16>(memory.weight), pointer<uint16_t>(memory.master_low)};
}

Masters masters_there(const UpdateMemory& memory) {
  if (!memory.master_low.defined()) return {device::data<float>(memory.weight), nullptr, nullptr};
  return {nullptr, device::data<Bf16>(memory.weight), device::data<uint16_t>(memory.master_low)};
}

Tensor join_masters(const UpdateMemory& memory) {
  return memory.master_low.defined() ? join_master(memory.weight, memory.master_low) : memory.weight;
}

void store_masters(const UpdateMemory& memory, const Tensor& before, const Tensor& after, const OnDevice& there) {
  const Tensor stored = at::where(there.applies(), after, before), old = memory.weight.clone();
  if (memory.master_low.defined()) {
    split_master(stored, memory.weight, memory.master_low);
  } else {
    memory.weight.copy_(stored);
  }
  there.changed.add_((memory.weight != old).sum());
}

void set_where(const Tensor& applies, const Tensor& to, const Tensor& value) {
  to.copy_(at::where(applies, value, to));
}

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
