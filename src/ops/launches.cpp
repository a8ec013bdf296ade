#include "ops/launches.h"

#include <algorithm>
#include <functional>

#include "kernels/cuda/stream.h"
#include "ops/device/cupti.h"
#include "ops/transfer.h"

namespace athanor::ops {

namespace {

DeviceKernels longest_of(const device::KernelTimes& times) {
  DeviceKernels result;
  for (const auto& [name, time] : times) {
    result.launches += time.launches;
    result.longest.push_back({name, time.launches, time.seconds});
  }
  std::ranges::sort(result.longest, std::greater(), &KernelUse::seconds);
  result.longest.resize(std::min(result.longest.size(), kMostKernels));
  return result;
}

}  // namespace

std::optional<DeviceKernels> count_launches(at::Device device, const std::function<void()>& work) {
  if (device.is_privateuseone()) {
    const auto* guarded = kernels::cuda::guarded_device();
    const int64_t before = guarded->num_launches();
    work();
    return DeviceKernels{guarded->num_launches() - before, {}};
  }
  const auto cupti = device.is_cuda() ? device::open_cupti() : std::nullopt;
  if (!cupti) {
    work();
    return std::nullopt;
  }
  wait_for(device);  // what was queued before does not count
  const auto times = device::time_kernels(*cupti, [&] {
    work();
    wait_for(device);
  });
  return times ? std::optional(longest_of(*times)) : std::nullopt;
}

}  // namespace athanor::ops
