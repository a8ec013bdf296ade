#include "ops/launches.h"

#include "kernels/cuda/stream.h"
#include "ops/device/cupti.h"
#include "ops/transfer.h"

namespace athanor::ops {

std::optional<int64_t> count_launches(at::Device device, const std::function<void()>& work) {
  if (device.is_privateuseone()) {
    const auto* played = kernels::cuda::played_device();
    const int64_t before = played->num_launches();
    work();
    return played->num_launches() - before;
  }
  const auto cupti = device.is_cuda() ? device::open_cupti() : std::nullopt;
  if (!cupti) {
    work();
    return std::nullopt;
  }
  wait_for(device);  // what was queued before does not count
  return device::count_kernels(*cupti, [&] {
    work();
    wait_for(device);
  });
}

}  // namespace athanor::ops
