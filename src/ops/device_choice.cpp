#include "ops/device_choice.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include "kernels/cuda/stream.h"
#include "ops/device/cuda_state.h"

namespace athanor::ops {
namespace {

using kernels::cuda::guarded_device;

// Returns why libtorch sees no such device; empty if it does.
std::string why_not(at::DeviceType type) {
  if (type == at::kXPU) return at::hasXPU() ? "" : "libtorch sees no XPU device";
  return device::describe_missing_cuda(device::find_cuda());
}

at::DeviceType first_accelerator() {
  const auto* guarded = guarded_device();
  if (guarded && guarded->is_offered()) return at::kPrivateUse1;
  for (const auto type : {at::kCUDA, at::kXPU})
    if (why_not(type).empty()) return type;
  return at::kCPU;
}

at::Device own_device(at::DeviceType type, const PlaceOnHost& place, const std::string& setting) {
  if (type == at::kCPU) return type;
  const int visible = c10::impl::VirtualGuardImpl(type).deviceCount();
  ATHANOR_CHECK(
      visible == 1 || place.index < visible,
      "{} ranks run on this host, and {} devices are visible to them; start at most {} ranks on it, or set {} "
      "to \"cpu\"",
      place.ranks, visible, visible, setting);
  return {type, static_cast<at::DeviceIndex>(visible == 1 ? 0 : place.index)};
}

at::Device prepared(at::Device device) {
  set_numerics_of(device);
  return device;
}

}  // namespace

void set_numerics_of(at::Device device) {
  if (device.is_cpu()) return;
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setAllowTF32CuBLAS(false);
  at::globalContext().setSDPUseCuDNN(false);
}

void make_current(at::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

at::Device choose_device(const std::string& name, const PlaceOnHost& place, const std::string& setting) {
  if (name == "cpu") return at::kCPU;
  if (name == "auto") return prepared(own_device(first_accelerator(), place, setting));
  const auto type = name == "cuda" ? at::kCUDA : at::kXPU;
  const std::string remedy = setting.starts_with("--")       ? "use " + setting + " cpu to compute on the CPU"
                             : setting.starts_with("train.") ? "set " + setting + " = \"cpu\" to train on the CPU"
                                                             : "set it to \"cpu\" to compute on the CPU";
  const std::string why = why_not(type);
  ATHANOR_CHECK(why.empty(), "{} is {}: {}; {}", setting, name, why, remedy);
  return prepared(own_device(type, place, setting));
}

std::string why_cpu() { return device::describe_briefly(device::find_cuda()); }

std::string why_not_accelerated() {
  const auto state = device::find_cuda();
  const bool has_gpu = access("/dev/nvidia0", F_OK) == 0;
  return device::has_old_driver(state) || (has_gpu && !state.is_built) ? device::describe_missing_cuda(state) : "";
}

std::optional<DeviceFacts> facts_of(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  if (device.is_privateuseone()) {
    const auto* guarded = guarded_device();
    return DeviceFacts{"the device that tests play", fmt::format("{}.{}", ::getpid(), device.index()),
                       guarded->free_bytes(), guarded->total_bytes()};
  }
  if (!device.is_cuda()) return DeviceFacts{};
  const auto facts = kernels::cuda::facts_of_device(device.index());
  return DeviceFacts{facts.name, facts.id, facts.free_bytes, facts.total_bytes};
}

}  // namespace athanor::ops
