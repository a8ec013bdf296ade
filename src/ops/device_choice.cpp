#include "ops/device_choice.h"

#include <ATen/Context.h>
#include <unistd.h>

#include "kernels/cuda/stream.h"
#include "ops/device/cuda_state.h"

namespace athanor::ops {
namespace {

using kernels::cuda::played_device;

// Returns why libtorch sees no such device; empty if it does.
std::string why_not(at::DeviceType type) {
  if (type == at::kXPU) return at::hasXPU() ? "" : "libtorch sees no XPU device";
  return device::describe_missing_cuda(device::find_cuda());
}

at::Device first_accelerator() {
  const auto* played = played_device();
  if (played && played->is_offered()) return {at::kPrivateUse1, 0};
  for (const auto type : {at::kCUDA, at::kXPU})
    if (why_not(type).empty()) return {type, 0};
  return at::kCPU;
}

at::Device prepared(at::Device device) {
  if (!device.is_cpu()) set_numerics_of_devices();
  return device;
}

}  // namespace

void set_numerics_of_devices() {
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  at::globalContext().setAllowTF32CuBLAS(false);
  at::globalContext().setSDPUseCuDNN(false);
}

at::Device choose_device(const std::string& name, int num_ranks, const std::string& setting) {
  if (name == "cpu" || (name == "auto" && num_ranks > 1)) return at::kCPU;
  if (name == "auto") return prepared(first_accelerator());
  const auto type = name == "cuda" ? at::kCUDA : at::kXPU;
  const std::string remedy = setting.starts_with("--")       ? "use " + setting + " cpu to compute on the CPU"
                             : setting.starts_with("train.") ? "set " + setting + " = \"cpu\" to train on the CPU"
                                                             : "set it to \"cpu\" to compute on the CPU";
  ATHANOR_CHECK(num_ranks == 1, "{} is {}, and a job of {} ranks trains on CPUs only; start one rank; {}", setting,
                name, num_ranks, remedy);
  const std::string why = why_not(type);
  ATHANOR_CHECK(why.empty(), "{} is {}: {}; {}", setting, name, why, remedy);
  return prepared({type, 0});
}

std::string why_cpu(int num_ranks) {
  return num_ranks > 1 ? "several ranks train on CPUs only" : device::describe_briefly(device::find_cuda());
}

std::string why_not_accelerated() {
  const auto state = device::find_cuda();
  const bool has_gpu = access("/dev/nvidia0", F_OK) == 0;
  return device::has_old_driver(state) || (has_gpu && !state.is_built) ? device::describe_missing_cuda(state) : "";
}

DeviceFacts facts_of(at::Device device) {
  if (device.is_privateuseone()) {
    const auto* played = played_device();
    return {"the device that tests play", played->free_bytes(), played->total_bytes()};
  }
  if (!device.is_cuda()) return {};
  const auto facts = kernels::cuda::facts_of_device(device.index());
  return {facts.name, facts.free_bytes, facts.total_bytes};
}

}  // namespace athanor::ops
