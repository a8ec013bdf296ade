#include "ops/flat_memory.h"

#include <sys/mman.h>

namespace athanor::ops {

Tensor flat_zeros(int64_t n, at::ScalarType dtype, c10::Device device) {
  if (!device.is_cpu()) return at::zeros({n}, at::TensorOptions(dtype).device(device));
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t bytes = static_cast<size_t>(n) * c10::elementSize(dtype);
  if (bytes < kHugePage) return at::zeros({n}, dtype);
  const size_t mapped = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(fmt::format("no memory for a buffer of {} bytes; a smaller model needs less", bytes),
                exit_code::kMemory);
  madvise(memory, mapped, MADV_HUGEPAGE);  // optional: without it only speed is lost
  return at::from_blob(
      memory, {n}, [mapped](void* p) { munmap(p, mapped); }, at::TensorOptions().dtype(dtype));
}

}  // namespace athanor::ops
