#include "ops/device/cuda_state.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "ops/device_choice.h"
#include "ops/tensor.h"

namespace athanor::ops::cuda_state_test {
namespace {

using device::CudaState, device::describe_briefly, device::describe_missing_cuda;

TEST(CudaState, AnOldDriverIsNamedWithBothVersions) {
  const CudaState old{true, 13000,
                      "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU "
                      "driver by downloading and installing a new version from the URL: …\nmore",
                      ""};
  EXPECT_EQ(describe_missing_cuda(old),
            "the NVIDIA driver of this machine knows CUDA 12.4, and the libtorch of this build needs 13.0; install a "
            "newer driver, or build with a libtorch for CUDA 12.4 (docs/gpu.md)");
  EXPECT_TRUE(device::has_old_driver(old));
}

TEST(CudaState, EveryOtherReasonIsOneLineWithWhatToDo) {
  const auto of = [](const char* said) { return describe_missing_cuda({true, 13000, said, ""}); };
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("Found no NVIDIA driver on your system. Please check that …"), "this machine has no NVIDIA driver");
  EXPECT_EQ(of("No CUDA GPUs are available"),
            "no GPU is visible to this process; look at nvidia-smi and CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(of("CUDA unknown error - this may be …\nException raised from"),
            "CUDA does not work here: CUDA unknown error - this may be …");
  EXPECT_NE(describe_missing_cuda({}).find("libtorch of this build has no CUDA"), std::string::npos);
  for (const char* said : {"", "Found no NVIDIA driver on your system.", "No CUDA GPUs are available"})
    EXPECT_FALSE(device::has_old_driver({true, 13000, said, ""}));
}

TEST(CudaState, InAFewWordsEveryReasonDiffersFromTheOthers) {
  EXPECT_EQ(describe_briefly({}), "libtorch has no CUDA");
  const auto of = [](const char* said) { return describe_briefly({true, 13000, said, ""}); };
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("Found no NVIDIA driver on your system. Please check that …"), "no NVIDIA driver");
  EXPECT_EQ(of("No CUDA GPUs are available"), "no GPU is visible");
  EXPECT_EQ(of("The NVIDIA driver on your system is too old (found version 12040)."), "the NVIDIA driver is too old");
  EXPECT_EQ(of("CUDA unknown error - this may be …"), "CUDA does not work here");
}

TEST(CudaState, ABuildForCpusSaysWhyAndWhichCommandChangesIt) {
  const CudaState state{false, 0, "", "set-up left out the libraries of CUDA (scripts/setup --cuda)"};
  EXPECT_EQ(describe_missing_cuda(state),
            "this is a build for CPUs: set-up left out the libraries of CUDA (scripts/setup --cuda)");
  EXPECT_EQ(describe_briefly(state), "a build for CPUs");
}

TEST(DeviceChoice, ARefusalNamesTheSettingThatAskedForTheDevice) {
  const auto refusal = [](const std::string& setting) {
    try {
      choose_device("xpu", {}, setting);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  if (at::hasXPU()) GTEST_SKIP() << "this machine has an XPU device";
  EXPECT_EQ(refusal("train.device"),
            "train.device is xpu: libtorch sees no XPU device; set train.device = \"cpu\" to train on the CPU");
  EXPECT_EQ(refusal("--device"),
            "--device is xpu: libtorch sees no XPU device; use --device cpu to compute on the CPU");
}

}  // namespace
}  // namespace athanor::ops::cuda_state_test
