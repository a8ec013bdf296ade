#include "train/gemm_peak.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

namespace athanor::gemm_peak_test {
namespace {

TEST(GemmPeak, IsPlausibleInBothTypesAndSoonKnown) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    const auto start = std::chrono::steady_clock::now();
    const GemmPeak peak = measure_gemm_peak(dtype);
    const double flops = peak.flops;
    EXPECT_TRUE(peak.is.starts_with(dtype == at::kFloat ? "float32, " : "bfloat16, ")) << peak.is;
    EXPECT_GT(flops, 1e8) << dtype;  // a tenth of the rate of one addition in each cycle
    EXPECT_LT(flops, 1e16) << dtype;
    // It takes 0.05 s on an idle machine; the rest is for tests that share the machine.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << dtype;
  }
}

// Half of either is accepted: other load on the machine comes and goes between the measurements.
TEST(GemmPeak, TheYardstickIsTheBestOfAllTypesThatTrainingCouldUse) {
  const double in_fp32 = measure_gemm_peak(at::kFloat).flops;
  EXPECT_GT(measure_best_gemm_peak().flops, 0.5 * in_fp32);
  ::setenv("ATHANOR_FAST_BF16", "0", 1);
  EXPECT_TRUE(measure_best_gemm_peak().is.starts_with("float32, "));
  ::unsetenv("ATHANOR_FAST_BF16");
}

}  // namespace
}  // namespace athanor::gemm_peak_test
