#include "ops/device_choice.h"

#include <ATen/Context.h>

#include "ops/device/on_stream.h"

namespace athanor::ops {
namespace {

using kernels::cuda::played_device;

constexpr const char* kOnTheCpu = "; set train.device = \"cpu\" to train on the CPU";

// Returns why libtorch sees no such device; empty if it does.
std::string why_not(at::DeviceType type) {
  if (type == at::kXPU) return at::hasXPU() ? "" : "libtorch sees no XPU device";
  if (at::hasCUDA()) return "";
  if (!device::libtorch_has_cuda())
    return "the libtorch of this build has no CUDA (docs/gpu.md: how to build one that has)";
  const char* why = kernels::cuda::why_no_device();
  return std::string("there is no CUDA device") + (why ? std::string(": ") + why : "");
}

at::Device first_accelerator() {
  const auto* played = played_device();
  if (played && played->is_offered()) return {at::kPrivateUse1, 0};
  for (const auto type : {at::kCUDA, at::kXPU})
    if (why_not(type).empty()) return {type, 0};
  return at::kCPU;
}

}  // namespace

at::Device choose_device(const std::string& name, int num_ranks) {
  if (name == "cpu" || (name == "auto" && num_ranks > 1)) return at::kCPU;
  if (name == "auto") return first_accelerator();
  const auto type = name == "cuda" ? at::kCUDA : at::kXPU;
  const std::string why = why_not(type);
  ATHANOR_CHECK(why.empty(), "train.device is {}: {}{}", name, why, kOnTheCpu);
  ATHANOR_CHECK(num_ranks == 1, "train.device is {}, and a job of {} ranks trains on CPUs only; start one rank{}", name,
                num_ranks, kOnTheCpu);
  return {type, 0};
}

DeviceFacts facts_of(at::Device device) {
  if (device.is_privateuseone()) return {"the device that tests play", played_device()->free_bytes()};
  if (!device.is_cuda()) return {};
  const auto facts = kernels::cuda::facts_of_device(device.index());
  return {facts.name, facts.free_bytes};
}

}  // namespace athanor::ops
