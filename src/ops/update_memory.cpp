#include "ops/update_memory.h"

#include "ops/device/on_stream.h"
#include "ops/master.h"

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

}  // namespace athanor::ops
