#include <algorithm>
#include <array>

#include "kernels/cuda/layer_norm.h"

#include <gtest/gtest.h>

#include "kernels/cuda/testing/device.h"
#include "kernels/norm.h"

namespace athanor::kernels::layer_norm_test {
namespace {

using namespace test;

constexpr float kEps = 1e-5f;

class LayerNormOn : public OnEachPlace {
 protected:
  template <class T>
  void forward(const T* x, const T* branch, T* sum, T* y, float* mean, float* rstd, int64_t rows, int64_t width) {
    if (!is_cpu()) {
      cuda::layer_norm_forward(stream(), x, branch, sum, y, mean, rstd, rows, width, kEps);
      cuda::synchronize(stream());
    } else if (branch) {
      add_layer_norm_forward(x, branch, sum, y, mean, rstd, rows, width, kEps);
    } else {
      layer_norm_forward(x, y, mean, rstd, rows, width, kEps);
    }
  }
  template <class T>
  void backward(const T* dsum, const T* dy, const T* x, const float* mean, const float* rstd, T* dx, int64_t rows,
                int64_t width) {
    if (!is_cpu()) {
      cuda::layer_norm_backward(stream(), dsum, dy, x, mean, rstd, dx, rows, width);
      cuda::synchronize(stream());
    } else if (dsum) {
      add_layer_norm_backward(dsum, dy, x, mean, rstd, dx, rows, width);
    } else {
      layer_norm_backward(dy, x, mean, rstd, dx, rows, width);
    }
  }
};
ATHANOR_ON_EACH_PLACE(LayerNormOn);

// Rows that do not fill a warp, tails, whole packs, and no rows.
constexpr std::array<std::array<int64_t, 2>, 5> kShapes = {{{0, 8}, {3, 2}, {3, 37}, {9, 64}, {5, 1032}}};

// The norm of a row in fp64: y, and what backward needs.
struct Exact {
  std::vector<double> normed;
  double r = 0, largest = 0;  // largest: of the row's values

  template <class T>
  Exact(const T* row, int64_t width) {
    double total = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) {
      total += load(row[i]);
      largest = std::max(largest, std::abs(double{load(row[i])}));
    }
    const double mean = total / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) squares += (load(row[i]) - mean) * (load(row[i]) - mean);
    r = 1 / std::sqrt(squares / static_cast<double>(width) + kEps);
    for (int64_t i = 0; i < width; ++i) normed.push_back((load(row[i]) - mean) * r);
  }
};

TEST_P(LayerNormOn, ForwardIsTheNormOfTheStoredSum) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const auto& [rows, width] : kShapes) {
      const auto x = numbers<T>(rows * width, 1, 3), branch = numbers<T>(rows * width, 2);
      const auto xs = put(x), branches = put(branch);
      for (const bool add : {false, true}) {
        const auto sum = put(garbage<T>(rows * width)), y = put(garbage<T>(rows * width));
        const auto mean = put(garbage<float>(rows)), rstd = put(garbage<float>(rows));
        forward<T>(xs.data(), add ? branches.data() : nullptr, add ? sum.data() : nullptr, y.data(), mean.data(),
                   rstd.data(), rows, width);
        auto stored = x;
        for (size_t i = 0; add && i < x.size(); ++i) store(stored[i], load(x[i]) + load(branch[i]));
        if (add) expect_same_bits(sum.values(), stored, "sum");
        const auto actual = y.values();
        for (int64_t row = 0; row < rows; ++row) {
          const Exact exact(stored.data() + row * width, width);
          for (int64_t i = 0; i < width; ++i) {
            // The mean has an error of `width` roundings of the largest value; rstd one of its own of as many.
            const double size = exact.largest * exact.r + std::abs(exact.normed[static_cast<size_t>(i)]);
            ASSERT_LE(
                std::abs(load(actual[static_cast<size_t>(row * width + i)]) - exact.normed[static_cast<size_t>(i)]),
                error_bound(size, kRoundoff<T>, 2 * width + 8))
                << rows << " × " << width << " element " << i;
          }
        }
      }
    }
  });
}

TEST_P(LayerNormOn, BackwardIsThatOfTheFormulaAndAddsTheStreamsPart) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const auto& [rows, width] : kShapes) {
      const auto x = numbers<T>(rows * width, 1, 3), dy = numbers<T>(rows * width, 2),
                 dsum = numbers<T>(rows * width, 3);
      const auto xs = put(x), dys = put(dy), dsums = put(dsum);
      const auto y = put(garbage<T>(rows * width));
      const auto mean = put(garbage<float>(rows)), rstd = put(garbage<float>(rows));
      forward<T>(xs.data(), nullptr, nullptr, y.data(), mean.data(), rstd.data(), rows, width);
      const auto alone = put(garbage<T>(rows * width)), added = put(garbage<T>(rows * width));
      backward<T>(nullptr, dys.data(), xs.data(), mean.data(), rstd.data(), alone.data(), rows, width);
      backward<T>(dsums.data(), dys.data(), xs.data(), mean.data(), rstd.data(), added.data(), rows, width);
      const auto dx = alone.values();
      auto expected = dx;
      for (size_t i = 0; i < dx.size(); ++i) store(expected[i], load(dsum[i]) + load(dx[i]));
      expect_same_bits(added.values(), expected, "dsum + dx");
      for (int64_t row = 0; row < rows; ++row) {
        const Exact exact(x.data() + row * width, width);
        double total = 0, dot = 0, most = 0;
        for (int64_t i = 0; i < width; ++i) {
          const double g = load(dy[static_cast<size_t>(row * width + i)]);
          total += g;
          dot += g * exact.normed[static_cast<size_t>(i)];
          most = std::max(most, std::abs(g));
        }
        const auto count = static_cast<double>(width);
        for (int64_t i = 0; i < width; ++i) {
          const double normed = exact.normed[static_cast<size_t>(i)],
                       g = load(dy[static_cast<size_t>(row * width + i)]);
          const double value = exact.r * (g - total / count - normed * dot / count);
          // Each of the three terms is at most r · most · max(1, |normed|), and a sum of `width` terms; the normed
          // values have the errors of forward.
          const double size = exact.r * most * (2 + (1 + std::abs(normed)) * (1 + exact.largest * exact.r));
          ASSERT_LE(std::abs(load(dx[static_cast<size_t>(row * width + i)]) - value),
                    error_bound(size, kRoundoff<T>, 3 * width + 16))
              << rows << " × " << width << " element " << i;
        }
      }
    }
  });
}

}  // namespace
}  // namespace athanor::kernels::layer_norm_test
