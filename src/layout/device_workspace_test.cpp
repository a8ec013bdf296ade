#include "layout/device_workspace.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace athanor::device_workspace_test {
namespace {

constexpr double kKiB = 1 << 10, kMiB = 1 << 20;

// Sets a variable of the environment, and removes it at the end.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST(CublasWorkspace, HasTheSizeOfHopperUnlessTheVariableSaysOtherwise) {
  constexpr const char* kName = "CUBLAS_WORKSPACE_CONFIG";
  const auto with = [&](const char* value) {
    const Variable set(kName, value);
    return cublas_workspace_bytes();
  };
  ::unsetenv(kName);
  EXPECT_EQ(cublas_workspace_bytes(), 32 * kMiB);
  EXPECT_EQ(with(":4096:2:16:8"), 2 * 4096 * kKiB + 8 * 16 * kKiB);
  EXPECT_EQ(with(":4096:8"), 32 * kMiB);
  EXPECT_EQ(with(":16:8"), 128 * kKiB);
  EXPECT_EQ(with(":0:0"), 0);
  EXPECT_EQ(with("size:16:1,:4:2"), 24 * kKiB);  // what stands between two pairs is passed over
  for (const char* none : {"", "4096", ":4096", ":4096:", ":x:8", "::8"}) EXPECT_EQ(with(none), 32 * kMiB) << none;
}

}  // namespace
}  // namespace athanor::device_workspace_test
