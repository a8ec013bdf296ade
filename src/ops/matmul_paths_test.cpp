#include "ops/matmul_paths.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "ops/matmul_timing.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::matmul_paths_test {
namespace {

// Sets ATHANOR_MATMUL while it lives.
class Asking {
 public:
  explicit Asking(const char* name) {
    if (const char* value = std::getenv("ATHANOR_MATMUL")) before_ = value;
    ::setenv("ATHANOR_MATMUL", name, 1);
  }
  ~Asking() { before_ ? ::setenv("ATHANOR_MATMUL", before_->c_str(), 1) : ::unsetenv("ATHANOR_MATMUL"); }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  std::optional<std::string> before_;
};

std::string message_of_asking(const char* name) {
  const Asking asking(name);
  try {
    asked_matmul_paths();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(MatmulPaths, AnUnknownNameIsRefusedWithThoseThatThereAre) {
  const std::string message = message_of_asking("avx1024");
  for (const char* part : {"avx1024", "library", "avx2", "avx512_bf16", "this CPU has"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(MatmulPaths, APathThatThisCpuLacksIsRefusedAndOneThatItHasIsTaken) {
  for (const MatmulPath path :
       {MatmulPath::kLibrary, MatmulPath::kAvx2, MatmulPath::kAvx512, MatmulPath::kAvx512Bf16}) {
    const Asking asking(kernels::name_of(path));
    if (kernels::has_path(path)) {
      EXPECT_EQ(asked_matmul_paths(), all_on(path));
      EXPECT_EQ(default_matmul_paths(), all_on(path));
    } else {
      EXPECT_NE(message_of_asking(kernels::name_of(path)).find("lacks"), std::string::npos);
    }
  }
}

TEST(MatmulPaths, TheDefaultCanBeAskedFor) {
  const Asking asking("default");
  ASSERT_TRUE(asked_matmul_paths().has_value());
  EXPECT_TRUE(kernels::has_path(asked_matmul_paths()->bf16.dense));
}

TEST(MatmulPaths, Fp32TakesTheInstructionsOfAvx512WhereBf16HasItsOwn) {
  EXPECT_EQ(all_on(MatmulPath::kAvx512Bf16).fp32.dense, MatmulPath::kAvx512);
}

TEST(MatmulTiming, MeasuresEachPathOfThisCpuAndLeavesTheChoiceAsItIs) {
  const MatmulPaths before = matmul_paths();
  const auto rates = measure_matmul_paths(at::kFloat, {ProductKind::kDense, ProductKind::kAttention},
                                          sample_shape(64, 64, 64, 16, 32, 64));
  EXPECT_EQ(matmul_paths(), before);
  size_t paths = 0;
  for (const MatmulPath path : kernels::paths_here()) paths += path != MatmulPath::kAvx512Bf16;
  EXPECT_EQ(rates.size(), 2 * paths);
  for (const PathRate& rate : rates) EXPECT_GT(rate.gflops, 0);
}

TEST(MatmulTiming, TheDefaultStaysUnlessAnotherIsATenthFaster) {
  const auto library = all_on(MatmulPath::kLibrary).bf16;
  const auto fastest = fastest_paths({{ProductKind::kDense, MatmulPath::kLibrary, 100},
                                      {ProductKind::kDense, MatmulPath::kAvx2, 108},
                                      {ProductKind::kAttention, MatmulPath::kLibrary, 100},
                                      {ProductKind::kAttention, MatmulPath::kAvx2, 112}},
                                     library);
  EXPECT_EQ(fastest.dense, MatmulPath::kLibrary);
  EXPECT_EQ(fastest.attention, MatmulPath::kAvx2);
  EXPECT_EQ(fastest.grouped, MatmulPath::kLibrary);
}

}  // namespace
}  // namespace athanor::ops::matmul_paths_test
