#include "ops/device/cuda_state.h"

#include <fmt/core.h>

#include <charconv>
#include <string_view>

namespace athanor::ops::device {
namespace {

// CUDA counts 13.2 as 13020.
std::string version_text(int64_t version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// libtorch states the driver's version in the text of its exception only. 0: it states none.
int64_t driver_version(std::string_view said) {
  constexpr std::string_view kWords = "too old (found version ";
  const size_t at = said.find(kWords);
  int64_t version = 0;
  if (at != said.npos) std::from_chars(said.data() + at + kWords.size(), said.data() + said.size(), version);
  return version;
}

// Words of libtorch's exceptions.
constexpr std::string_view kNoDriver = "no NVIDIA driver", kNoGpu = "No CUDA GPUs";

bool states(const CudaState& state, std::string_view words) { return state.why_none.find(words) != std::string::npos; }

}  // namespace

bool has_old_driver(const CudaState& state) { return driver_version(state.why_none) > 0; }

std::string describe_missing_cuda(const CudaState& state) {
  if (!state.is_built && !state.why_not_built.empty()) return "this is a build for CPUs: " + state.why_not_built;
  if (!state.is_built)
    return "the libtorch of this build has no CUDA; build Athanor with one that has (docs/gpu.md, \"Build\")";
  const std::string& said = state.why_none;
  if (said.empty()) return "";
  if (const int64_t driver = driver_version(said); driver > 0)
    return fmt::format(
        "the NVIDIA driver of this machine knows CUDA {}, and the libtorch of this build needs {}; install a newer "
        "driver, or build with a libtorch for CUDA {} (docs/gpu.md)",
        version_text(driver), version_text(state.version), version_text(driver));
  if (states(state, kNoDriver)) return "this machine has no NVIDIA driver";
  if (states(state, kNoGpu)) return "no GPU is visible to this process; look at nvidia-smi and CUDA_VISIBLE_DEVICES";
  return "CUDA does not work here: " + said.substr(0, said.find('\n'));
}

std::string describe_briefly(const CudaState& state) {
  if (!state.is_built) return state.why_not_built.empty() ? "libtorch has no CUDA" : "a build for CPUs";
  if (state.why_none.empty()) return "";
  if (has_old_driver(state)) return "the NVIDIA driver is too old";
  if (states(state, kNoDriver)) return "no NVIDIA driver";
  return states(state, kNoGpu) ? "no GPU is visible" : "CUDA does not work here";
}

}  // namespace athanor::ops::device
