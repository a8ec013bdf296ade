#include "train/gemm_peak.h"

#include <gtest/gtest.h>

#include <chrono>

namespace athanor {
namespace {

TEST(GemmPeak, IsPlausibleInBothTypesAndSoonKnown) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    const auto start = std::chrono::steady_clock::now();
    const double flops = measure_gemm_peak_flops(dtype);
    EXPECT_GT(flops, 1e8) << dtype;  // a tenth of what one addition a cycle would be
    EXPECT_LT(flops, 1e16) << dtype;
    // 0.05 s where nothing else runs; the rest is for tests that share the machine.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << dtype;
  }
}

}  // namespace
}  // namespace athanor
