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
            .part = "node",
            .parts = "node",
            .large_product = 512,
            .large_copy_bytes = int64_t{1} << 24,  // more than one core's cache
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
          .part = "device",
          .parts = "devices",
          .large_product = 4096,
          .large_copy_bytes = int64_t{1} << 28,
          .step_on_host = 0,
          .staging_on_host = 1,
          .sent_at_once = 16,
          .usual_type = "bfloat16"};
}

}  // namespace athanor::ops
