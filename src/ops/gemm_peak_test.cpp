#include "ops/gemm_peak.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace athanor::ops::gemm_peak_test {
namespace {

TEST(GemmPeak, IsPlausibleInBothTypes) {
  for (const auto dtype : {at::kBFloat16, at::kFloat}) {
    const GemmPeak peak = measure_gemm_peak(dtype);
    EXPECT_TRUE(peak.is.starts_with(dtype == at::kFloat ? "float32, " : "bfloat16, ")) << peak.is;
    EXPECT_GT(peak.flops, 1e7)
        << dtype;  // a hundredth of the rate of one addition in each cycle: others share the machine
    EXPECT_LT(peak.flops, 1e16) << dtype;
  }
}

TEST(GemmPeak, TheYardstickIsTheBestOfAllTypesThatTrainingCouldUse) {
  ::setenv("ATHANOR_FAST_BF16", "0", 1);
  EXPECT_TRUE(measure_best_gemm_peak().is.starts_with("float32, "));
  ::setenv("ATHANOR_FAST_BF16", "1", 1);
  const GemmPeak best = measure_best_gemm_peak();
  EXPECT_TRUE(best.is.starts_with("float32, ") || best.is.starts_with("bfloat16, ")) << best.is;
  ::unsetenv("ATHANOR_FAST_BF16");
}

}  // namespace
}  // namespace athanor::ops::gemm_peak_test
