#include "kernels/cuda/accumulate.h"

#include <gtest/gtest.h>

#include "kernels/cuda/testing/device.h"

namespace athanor::kernels::accumulate_test {
namespace {

using namespace test;

class AccumulateOnCuda : public OnEachPlace {};
ATHANOR_ON_CUDA_PLACES(AccumulateOnCuda);

TEST_P(AccumulateOnCuda, AddsEachElement) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t n : {0, 1, 103, 4096}) {
      const auto x = numbers<T>(n, 1);
      auto sum = numbers<float>(n, 2);
      const auto from = put(x);
      const auto to = put(sum);
      cuda::accumulate(stream(), to.data(), from.data(), n);
      for (size_t i = 0; i < x.size(); ++i) sum[i] += load(x[i]);
      expect_same_bits(to.values(), sum, "sum");
    }
  });
}

TEST_P(AccumulateOnCuda, AGroupWithoutRowsIsNotTouchedWhateverItHolds) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const int64_t size : {1, 37, 64}) {
      const std::vector<int64_t> offsets = {0, 3, 3, 7, 7};
      auto x = numbers<T>(4 * size, 3);
      auto sum = numbers<float>(4 * size, 4);
      for (int64_t i = 0; i < size; ++i) store(x[size + i], NAN), store(x[3 * size + i], NAN);
      const auto from = put(x);
      const auto to = put(sum);
      const auto at = put(offsets);
      cuda::accumulate_groups(stream(), to.data(), from.data(), at.data(), 4, size);
      for (int64_t i = 0; i < size; ++i) sum[i] += load(x[i]), sum[2 * size + i] += load(x[2 * size + i]);
      expect_same_bits(to.values(), sum, "sum");
    }
  });
}

TEST_P(AccumulateOnCuda, RowsOfOneIdAreAddedInTheirOrder) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{0, 4}, {1, 3}, {100, 8}, {57, 37}}) {
      constexpr int64_t kVocab = 9;
      const auto dy = numbers<T>(rows * width, 5, 100);  // so that the order shows in the sum's bits
      auto sum = numbers<float>(kVocab * width, 6);
      std::vector<int64_t> ids(static_cast<size_t>(rows));
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * i % 7 + (i % 5 == 0));
      const auto from = put(dy);
      const auto to = put(sum);
      const auto at = put(ids), space = put(std::vector<int64_t>(ids.size() * 2, -7));
      cuda::accumulate_rows(stream(), to.data(), from.data(), at.data(), space.data(), rows, width);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < width; ++i) sum[ids[r] * width + i] += load(dy[r * width + i]);
      }
      expect_same_bits(to.values(), sum, "sum");
    }
  });
}

}  // namespace
}  // namespace athanor::kernels::accumulate_test
