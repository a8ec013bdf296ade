#include "kernels/symmetric.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace athanor::kernels::symmetric_test {
namespace {

template <class T>
std::vector<T> numbers(int64_t n, uint32_t seed) {
  std::vector<T> values(static_cast<size_t>(n));
  std::minstd_rand random(seed);
  std::normal_distribution<float> normal;
  for (T& x : values) store(x, normal(random));
  return values;
}

template <class T>
float at(const std::vector<T>& values, int64_t i) {
  return load(values[static_cast<size_t>(i)]);
}

template <class T>
float rounded(float x) {
  T stored;
  store(stored, x);
  return load(stored);
}

template <class T>
class Symmetric : public testing::Test {};
using Elements = testing::Types<float, Bf16>;
TYPED_TEST_SUITE(Symmetric, Elements);

// One element, less than a tile of 32, its edge, several tiles; as one range of rows, and in bands of 20.
template <class F>
void on_each_size(F f) {
  for (const int64_t m : {1, 7, 31, 32, 33, 64, 101}) {
    for (const int64_t band : {m, int64_t{20}}) {
      SCOPED_TRACE(testing::Message() << m << " rows in bands of " << band);
      f(m, [=](auto rows) {
        for (int64_t begin = 0; begin < m; begin += band) rows(begin, std::min(begin + band, m));
      });
    }
  }
}

TYPED_TEST(Symmetric, MirrorCopiesWhatIsBelowTheDiagonalAndChangesNothingElse) {
  on_each_size([](int64_t m, auto for_bands) {
    const auto before = numbers<TypeParam>(m * m, 1);
    auto after = before;
    for_bands([&](int64_t begin, int64_t end) { mirror(after.data(), m, begin, end); });
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < m; ++j)
        ASSERT_EQ(at(after, i * m + j), at(before, std::max(i, j) * m + std::min(i, j))) << i << ", " << j;
  });
}

// The second matrix may be the one that is written.
TYPED_TEST(Symmetric, AddsWhatIsBelowTheDiagonalOfTwoMatricesAndTheIdentity) {
  on_each_size([](int64_t m, auto for_bands) {
    const auto first = numbers<TypeParam>(m * m, 2), second = numbers<TypeParam>(m * m, 3);
    const std::vector<float> wide = [&] {
      std::vector<float> values;
      for (const auto& x : second) values.push_back(load(x));
      return values;
    }();
    std::vector<TypeParam> apart(first.size()), in_place = second;
    for_bands([&](int64_t begin, int64_t end) {
      add_symmetric(1.5f, 0.3f, first.data(), -0.7f, wide.data(), apart.data(), m, begin, end);
      add_symmetric<TypeParam, TypeParam>(1.5f, 0.3f, first.data(), -0.7f, in_place.data(), in_place.data(), m, begin,
                                          end);
    });
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < m; ++j) {
        const int64_t below = std::max(i, j) * m + std::min(i, j);
        const float sum = 0.3f * at(first, below) + -0.7f * wide[static_cast<size_t>(below)] + (i == j ? 1.5f : 0.0f);
        ASSERT_EQ(at(apart, i * m + j), rounded<TypeParam>(sum)) << i << ", " << j;
        ASSERT_EQ(at(in_place, i * m + j), rounded<TypeParam>(sum)) << i << ", " << j;
      }
    }
  });
}

TYPED_TEST(Symmetric, ConvertsAndTransposes) {
  on_each_size([](int64_t rows, auto for_bands) {
    for (const int64_t columns : {1, 32, 50}) {
      const auto from = numbers<float>(rows * columns, 4);
      std::vector<TypeParam> plain(from.size()), turned(from.size());
      std::vector<float> back(from.size());
      for_bands([&](int64_t begin, int64_t end) {
        convert_rows(from.data(), rows, columns, 0.3f, false, plain.data(), begin, end);
        convert_rows(from.data(), rows, columns, 0.3f, true, turned.data(), begin, end);
      });
      convert_rows(turned.data(), columns, rows, 1.0f, true, back.data(), 0, columns);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          const float expected = rounded<TypeParam>(0.3f * at(from, i * columns + j));
          ASSERT_EQ(at(plain, i * columns + j), expected);
          ASSERT_EQ(at(turned, j * rows + i), expected) << i << ", " << j;
          ASSERT_EQ(at(back, i * columns + j), expected) << i << ", " << j;
        }
      }
    }
  });
}

}  // namespace
}  // namespace athanor::kernels::symmetric_test
