#include "bench/place.h"

#include <fmt/core.h>

#include <limits>

#include "base/process.h"
#include "ops/device_choice.h"
#include "ops/gemm_peak.h"
#include "ops/tensor.h"
#include "ops/transfer.h"

namespace athanor::bench {

double free_memory(at::Device device) {
  const auto facts = ops::facts_of(device);
  if (!facts) return static_cast<double>(available_memory_bytes());
  return facts->free_bytes < 0 ? std::numeric_limits<double>::infinity() : static_cast<double>(facts->free_bytes);
}

Tensor sent(const Tensor& x, at::Device device) {
  if (x.device() == device) return x;
  const Tensor there = at::empty(x.sizes(), x.options().device(device));
  if (device.is_cpu()) {
    ops::fetch_bytes(x.detach().contiguous(), there.data_ptr());
  } else {
    ops::send_bytes(there, x.contiguous().const_data_ptr());
  }
  return there;
}

Limit gemm_limit_of(at::ScalarType dtype, at::Device device) {
  return {fmt::format("{} GEMM peak of {}", ops::type_name(dtype), device.str()), "FLOP",
          ops::measure_gemm_peak(dtype, device).flops};
}

nlohmann::json with_device(nlohmann::json fields, at::Device device) {
  if (!device.is_cpu()) fields["device"] = device.str();
  return fields;
}

}  // namespace athanor::bench
