#include <gtest/gtest.h>

#include "kernels/testing/isa_levels.h"
#include "kernels/testing/isa_outputs.h"

namespace athanor::kernels::isa_test {
namespace {

void expect_same_bits(const isa_levels::Outputs& actual, const isa_levels::Outputs& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].first, expected[i].first);
    EXPECT_TRUE(actual[i].second == expected[i].second) << actual[i].first << " differs";
  }
}

TEST(Isa, WhatTheLoaderChoseGivesTheBitsOfTheBaseline) {
  expect_same_bits(test::IsaOutputs().all(), isa_levels::baseline());
}

TEST(Isa, Avx2GivesTheBitsOfTheBaseline) {
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  if (!__builtin_cpu_supports("x86-64-v3")) GTEST_SKIP() << "this CPU has no AVX2 and FMA";
  expect_same_bits(isa_levels::v3(), isa_levels::baseline());
#else
  GTEST_SKIP() << "only GCC on x86-64 compiles one file for several levels";
#endif
}

}  // namespace
}  // namespace athanor::kernels::isa_test
