// The functions of libtorch that Athanor computes with on the CPU.

#include "ops/library_functions.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/rope.h"
#include "ops/tensor.h"

namespace athanor::ops::library_functions_test {
namespace {

// The angles of a microbatch, which two threads compute; whatever computed before in this process.
TEST(LibraryFunctions, TheFirstAnglesOfAProcessAreRightToAFewUnitsInTheLastPlace) {
  const Tensor positions = at::arange(256, at::kLong), frequency = inverse_frequency(32, 10000);
  const Rotation rotation = make_rotation(positions, frequency);
  for (int64_t p = 0; p < 256; ++p) {
    for (int64_t i = 0; i < 16; ++i) {
      const float angle = static_cast<float>(p) * frequency.data_ptr<float>()[i];
      EXPECT_NEAR(rotation.cos.data_ptr<float>()[p * 16 + i], std::cos(double{angle}), 0x1p-22);
      EXPECT_NEAR(rotation.sin.data_ptr<float>()[p * 16 + i], std::sin(double{angle}), 0x1p-22);
    }
  }
}

TEST(LibraryFunctions, AreStartedOnce) {
  EXPECT_NO_THROW(start_library_functions());
  EXPECT_NO_THROW(start_library_functions());
}

}  // namespace
}  // namespace athanor::ops::library_functions_test
