#include "kernels/cuda/grouped_matmul.h"

#include <gtest/gtest.h>

#include "kernels/cuda/testing/device.h"

namespace athanor::kernels::grouped_matmul_test {
namespace {

using namespace test;

class GroupedMatmulOnCuda : public OnEachPlace {};
ATHANOR_ON_CUDA_PLACES(GroupedMatmulOnCuda);

// Groups without rows, with one, with a whole tile, and with more; four rows of none.
const std::vector<int64_t> kOffsets = {0, 0, 1, 65, 65, 131, 134, 134};
constexpr int64_t kGroups = 7, kRows = 138;

std::vector<cuda::GroupedShape> shapes() {
  return {{kGroups, kRows, 1, 1},    {kGroups, kRows, 17, 63}, {kGroups, kRows, 40, 70},
          {kGroups, kRows, 64, 128}, {kGroups, kRows, 5, 200}, {kGroups, kRows, 0, 3}};
}

// A sum of products in the order of its index, as a kernel without tiles adds it, and the exact one.
struct Added {
  float sum = 0;
  double exact = 0, norm = 0;

  template <class T>
  void add(T a, T b) {
    sum += load(a) * load(b);
    const double product = static_cast<double>(load(a)) * static_cast<double>(load(b));
    exact += product;
    norm += std::abs(product);
  }
};

TEST_P(GroupedMatmulOnCuda, MultipliesTheRowsOfEachGroupInOneOrder) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const auto& shape : shapes()) {
      for (const bool transposed : {false, true}) {
        auto a = numbers<T>(kRows * shape.inner, 1);
        const auto b = numbers<T>(kGroups * shape.inner * shape.columns, 2);
        // What belongs to no group is not read.
        for (int64_t i = kOffsets.back() * shape.inner; i < kRows * shape.inner; ++i) store(a[i], NAN);
        auto expected = garbage<T>(kRows * shape.columns);
        for (int64_t g = 0; g < kGroups; ++g) {
          for (int64_t r = kOffsets[g]; r < kOffsets[g + 1]; ++r) {
            for (int64_t c = 0; c < shape.columns; ++c) {
              Added added;
              for (int64_t i = 0; i < shape.inner; ++i) {
                const int64_t at = transposed ? c * shape.inner + i : i * shape.columns + c;
                added.add(a[r * shape.inner + i], b[g * shape.inner * shape.columns + at]);
              }
              T& result = expected[r * shape.columns + c];
              store(result, added.sum);
              ASSERT_LE(std::abs(static_cast<double>(load(result)) - added.exact),
                        error_bound(added.norm, kRoundoff<T>, shape.inner + 1));
            }
          }
        }
        const auto left = put(a), right = put(b), out = put(garbage<T>(kRows * shape.columns));
        const auto at = put(kOffsets);
        cuda::grouped_matmul(stream(), left.data(), right.data(), transposed, out.data(), at.data(), shape);
        expect_same_bits(out.values(), expected, transposed ? "transposed" : "product");
      }
    }
  });
}

TEST_P(GroupedMatmulOnCuda, AddsTheOuterProductOfEachGroupThatHasRows) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const auto& shape : shapes()) {
      const int64_t m = shape.inner, n = shape.columns;
      auto a = numbers<T>(kRows * m, 1), b = numbers<T>(kRows * n, 2);
      for (int64_t i = kOffsets.back() * m; i < kRows * m; ++i) store(a[i], NAN);
      auto sum = numbers<float>(kGroups * m * n, 3);
      const auto left = put(a);
      const auto right = put(b);
      const auto to = put(sum);
      const auto at = put(kOffsets);
      cuda::add_grouped_outer_product(stream(), to.data(), left.data(), right.data(), at.data(), kGroups, m, n);
      for (int64_t g = 0; g < kGroups; ++g) {
        if (kOffsets[g] == kOffsets[g + 1]) continue;
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t c = 0; c < n; ++c) {
            Added added;
            for (int64_t i = kOffsets[g]; i < kOffsets[g + 1]; ++i) added.add(a[i * m + r], b[i * n + c]);
            ASSERT_LE(std::abs(static_cast<double>(added.sum) - added.exact),
                      error_bound(added.norm, kRoundoffFp32, kOffsets[g + 1] - kOffsets[g] + 1));
            sum[(g * m + r) * n + c] += added.sum;
          }
        }
      }
      expect_same_bits(to.values(), sum, "sum");
    }
  });
}

TEST_P(GroupedMatmulOnCuda, OfNoRowsDoesNothing) {
  const std::vector<int64_t> none = {0, 0, 0};
  const auto at = put(none);
  const auto empty = put(std::vector<float>{});
  const auto b = put(numbers<float>(2 * 3 * 5, 1));
  const auto before = numbers<float>(2 * 3 * 5, 2);
  const auto sum = put(before);
  cuda::grouped_matmul(stream(), empty.data(), b.data(), false, empty.data(), at.data(), {2, 0, 3, 5});
  cuda::add_grouped_outer_product(stream(), sum.data(), empty.data(), empty.data(), at.data(), 2, 3, 5);
  expect_same_bits(sum.values(), before, "sum");
}

}  // namespace
}  // namespace athanor::kernels::grouped_matmul_test
