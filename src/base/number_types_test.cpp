#include "base/number_types.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace athanor::number_types_test {
namespace {

TEST(NumberTypes, ShortNamesAreTheLongOnes) {
  EXPECT_EQ(canonical_type_name("bf16"), "bfloat16");
  EXPECT_EQ(canonical_type_name("fp32"), "float32");
  EXPECT_EQ(canonical_type_name("bfloat16"), "bfloat16");
  EXPECT_EQ(canonical_type_name("fp16"), "fp16");
}

TEST(NumberTypes, Bf16IsFastWhereTheCpuSaysSoAndOnlyThere) {
  const auto file = std::filesystem::path(testing::TempDir()) / ("cpuinfo_" + std::to_string(::getpid()));
  const auto fast = [&](const std::string& text) {
    std::ofstream(file) << text;
    return has_fast_bf16(file);
  };
  EXPECT_TRUE(fast("processor : 0\nflags\t\t: fpu avx512f avx512_bf16 sse\n"));
  EXPECT_TRUE(fast("flags : fpu amx_bf16\n"));
  EXPECT_TRUE(fast("processor : 0\nFeatures : fp asimd bf16 sve\n"));  // Arm
  EXPECT_FALSE(fast("flags : fpu avx2 fma avx512f avx512bw\nbugs : avx512_bf16\n"));
  EXPECT_FALSE(fast("processor : 0\n"));
  std::filesystem::remove(file);
  EXPECT_FALSE(has_fast_bf16(file));
}

TEST(NumberTypes, TheEnvironmentMayAnswerForTheCpu) {
  ::setenv("ATHANOR_FAST_BF16", "1", 1);
  EXPECT_TRUE(has_fast_bf16("/nowhere"));
  ::setenv("ATHANOR_FAST_BF16", "0", 1);
  EXPECT_FALSE(has_fast_bf16());
  ::unsetenv("ATHANOR_FAST_BF16");
}

}  // namespace
}  // namespace athanor::number_types_test
