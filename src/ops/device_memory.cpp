#include "ops/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace athanor::ops {
namespace {

// Null if there is nothing to count: an allocator is not ready before its first tensor.
c10::DeviceAllocator* allocator_of(at::Device device) {
  if (device.is_cpu()) return nullptr;
  auto* allocator = c10::getDeviceAllocator(device.type());
  return allocator->initialized() ? allocator : nullptr;
}

int64_t sum_of(const c10::CachingAllocator::StatArray& stats, int64_t c10::CachingAllocator::Stat::*figure) {
  return stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].*figure;
}

}  // namespace

std::optional<DeviceMemory> device_memory(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  auto* allocator = allocator_of(device);
  if (!allocator) return DeviceMemory{};
  using Stat = c10::CachingAllocator::Stat;
  const auto stats = allocator->getDeviceStats(device.index());
  return DeviceMemory{sum_of(stats.allocated_bytes, &Stat::current), sum_of(stats.allocated_bytes, &Stat::peak),
                      sum_of(stats.reserved_bytes, &Stat::current)};
}

void reset_peak_device_memory(at::Device device) {
  if (auto* allocator = allocator_of(device)) allocator->resetPeakStats(device.index());
}

void release_device_memory(at::Device device) {
  if (auto* allocator = allocator_of(device)) allocator->emptyCache();
}

}  // namespace athanor::ops
