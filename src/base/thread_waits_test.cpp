#include "base/thread_waits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace athanor::thread_waits_test {
namespace {

// Runs without the variables that may be set around the tests.
class ThreadWaits : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) ::unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static std::string spins() { return std::getenv("GOMP_SPINCOUNT") ? std::getenv("GOMP_SPINCOUNT") : ""; }

  static constexpr const char* kNames[] = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"};
};

TEST_F(ThreadWaits, ASpinIsBriefWhateverAPauseTakesOnThisChip) {
  set_thread_waits();
  const double count = std::stod(spins());
  EXPECT_GE(count, 1000);     // a pause takes at most some 150 cycles
  EXPECT_LE(count, 1000000);  // and at least one
  EXPECT_TRUE(describe_thread_waits().starts_with("spin for about 0.")) << describe_thread_waits();
}

TEST_F(ThreadWaits, WhatTheEnvironmentSaysStays) {
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  set_thread_waits();
  EXPECT_EQ(spins(), "");
  EXPECT_EQ(describe_thread_waits(), "wait as set by OMP_WAIT_POLICY=passive");
  ::unsetenv("OMP_WAIT_POLICY");
  ::setenv("GOMP_SPINCOUNT", "infinite", 1);
  set_thread_waits();
  EXPECT_EQ(spins(), "infinite");
  EXPECT_EQ(describe_thread_waits(), "wait as set by GOMP_SPINCOUNT=infinite");
}

}  // namespace
}  // namespace athanor::thread_waits_test
