#include "ops/flat_memory.h"

#include <gtest/gtest.h>

namespace athanor::ops::flat_memory_test {
namespace {

TEST(FlatMemory, IsZeroOfTheTypeAndSizeAskedFor) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kUInt16}) {
    for (const int64_t n : {int64_t{0}, int64_t{7}, int64_t{1} << 20, (int64_t{3} << 20) + 5}) {
      const Tensor x = flat_zeros(n, dtype);
      EXPECT_EQ(x.numel(), n);
      EXPECT_EQ(x.scalar_type(), dtype);
      const auto* bytes = static_cast<const unsigned char*>(x.data_ptr());
      EXPECT_TRUE(std::all_of(bytes, bytes + x.nbytes(), [](unsigned char b) { return b == 0; }));
    }
  }
}

TEST(FlatMemory, LivesAsLongAsAViewOfIt) {
  Tensor view;
  {
    const Tensor whole = flat_zeros(int64_t{2} << 20, at::kFloat);
    whole.fill_(3);
    view = whole.narrow(0, 100, 5);
  }
  EXPECT_EQ(view.sum().item<float>(), 15.0f);
}

}  // namespace
}  // namespace athanor::ops::flat_memory_test
