#include "kernels/cuda/noise.h"

#include <gtest/gtest.h>

#include "kernels/cuda/testing/device.h"

namespace athanor::kernels::noise_test {
namespace {

using namespace test;

class NoiseOn : public OnEachPlace {};
ATHANOR_ON_CUDA_PLACES(NoiseOn);

TEST_P(NoiseOn, IsOneStreamOfNumbersWithTheBitsOfTheHostWhereverItIsCut) {
  const CounterKey key{0x123456789ABCDEF0, 0xFEDCBA9876543210};
  constexpr int64_t kCount = 10'001;
  for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{6}, (int64_t{1} << 33) + 1}) {
    for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{2}, kCount}) {
      std::vector<float> expected(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) {
        const NormalPair of = normal_pair(counter_bits(key, static_cast<uint64_t>((first + i) / 2)));
        const double radius = std::sqrt(of.squared_radius);
        const double normal = radius * ((first + i) % 2 == 0 ? of.cosine : of.sine);
        expected[static_cast<size_t>(i)] = static_cast<float>(normal * 0.3);
      }
      const auto out = put(garbage<float>(count));
      cuda::fill_normal(stream(), key, out.data(), first, count, 0.3);
      expect_same_bits(out.values(), expected, "from " + std::to_string(first));
    }
  }
}

}  // namespace
}  // namespace athanor::kernels::noise_test
