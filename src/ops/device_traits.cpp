#include "ops/device_traits.h"

#include <limits>

namespace athanor::ops {

DeviceTraits traits_of(at::Device device) {
  const std::string kind = c10::DeviceTypeName(device.type(), /*lower_case=*/true);
  if (device.is_cpu()) {
    return {.kind = kind,
            .place = "the CPU",
            .own = "this CPU",
            .name = "",
            .on_kind = "",
            .on_devices = "",
            .on_host = "",
            .part = "node",
            .parts = "node",
            .stored_by_attention = 0,
            .stored_by_attention_backward = 0,
            .stored_by_experts_backward = 0,
            .is_queued = false,
            .large_product = 512,
            .large_copy_bytes = int64_t{1} << 24,  // more than one core's cache
            .watched = WatchedDetail::kPartsOfLayers,
            .step_on_host = 1,
            .staging_on_host = 0,
            .sent_at_once = std::numeric_limits<size_t>::max(),
            .usual_type = ""};
  }
  return {.kind = kind,
          .place = device.str(),
          .own = "the device",
          .name = device.str(),
          .on_kind = " on " + kind,
          .on_devices = " on " + kind + " devices",
          .on_host = " on the CPU",
          .part = "device",
          .parts = "devices",
          .stored_by_attention = 1,
          .stored_by_attention_backward = 2,
          .stored_by_experts_backward = 1,
          .is_queued = !on_host(device),
          .large_product = 4096,
          .large_copy_bytes = int64_t{1} << 28,
          .watched = WatchedDetail::kLayers,
          .step_on_host = 0,
          .staging_on_host = 1,
          .sent_at_once = 16,
          .usual_type = "bfloat16"};
}

}  // namespace athanor::ops
