#include <algorithm>
#include <array>

#include "kernels/cuda/norm.h"

#include <gtest/gtest.h>

#include "kernels/accumulate.h"
#include "kernels/cuda/testing/device.h"
#include "kernels/norm.h"

namespace athanor::kernels::norm_test {
namespace {

using namespace test;

constexpr float kEps = 1e-5f, kOffset = 0.25f;  // is added to the weight

class NormOn : public OnEachPlace {
 protected:
  template <class T>
  void forward(const T* x, const T* branch, const T* w, T* sum, T* y, float* rstd, int64_t rows, int64_t width) {
    if (!is_cpu()) {
      cuda::rms_norm_forward(stream(), x, branch, w, sum, y, rstd, rows, width, kEps, kOffset);
    } else if (branch) {
      add_rms_norm_forward(x, branch, w, sum, y, rstd, rows, width, kEps, kOffset);
    } else {
      rms_norm_forward(x, w, y, rstd, rows, width, kEps, kOffset);
    }
  }

  template <class T>
  void backward(const T* dsum, const T* dy, const T* x, const T* w, const float* rstd, T* dx, float* dw, int64_t rows,
                int64_t width) {
    const auto partials = put(garbage<float>(cuda::norm_partials(rows, width)));
    if (!is_cpu()) {
      cuda::rms_norm_backward(stream(), dsum, dy, x, w, rstd, dx, dw, partials.data(), rows, width, kOffset);
      cuda::synchronize(stream());
      return;
    }
    for (int64_t row = 0; row < rows; row += cuda::kRowsPerPartial) {
      std::vector<float> sums(static_cast<size_t>(width));
      const int64_t count = std::min(cuda::kRowsPerPartial, rows - row), at = row * width;
      if (dsum) {
        add_rms_norm_backward(dsum + at, dy + at, x + at, w, rstd + row, dx + at, sums.data(), count, width, kOffset);
      } else {
        rms_norm_backward(dy + at, x + at, w, rstd + row, dx + at, sums.data(), count, width, kOffset);
      }
      accumulate(dw, sums.data(), width);
    }
  }
};
ATHANOR_ON_EACH_PLACE(NormOn);

// Rows that do not fill a warp, tails, whole packs, and more rows than one partial sum of the weight has.
constexpr std::array<std::array<int64_t, 2>, 6> kShapes = {{{0, 8}, {1, 1}, {3, 37}, {9, 64}, {130, 24}, {5, 1032}}};

TEST_P(NormOn, ForwardIsTheNormOfTheStoredSum) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const auto& [rows, width] : kShapes) {
      const auto x = numbers<T>(rows * width, 1, 3), branch = numbers<T>(rows * width, 2), w = numbers<T>(width, 3);
      const auto xs = put(x), branches = put(branch), ws = put(w);
      for (const bool add : {false, true}) {
        const auto sum = put(garbage<T>(rows * width)), y = put(garbage<T>(rows * width));
        const auto rstd = put(garbage<float>(rows));
        forward<T>(xs.data(), add ? branches.data() : nullptr, ws.data(), add ? sum.data() : nullptr, y.data(),
                   rstd.data(), rows, width);
        auto stored = x;
        for (size_t i = 0; add && i < x.size(); ++i) store(stored[i], load(x[i]) + load(branch[i]));
        if (add) expect_same_bits(sum.values(), stored, "sum");
        const auto actual = y.values();
        const auto actual_rstd = rstd.values();
        for (int64_t row = 0; row < rows; ++row) {
          double squares = 0;
          for (int64_t i = row * width; i < (row + 1) * width; ++i)
            squares += double{load(stored[i])} * load(stored[i]);
          const double r = 1 / std::sqrt(squares / static_cast<double>(width) + kEps);
          // The roundings are one for each square, then sum, mean, eps, root and reciprocal; then two products.
          ASSERT_LE(std::abs(actual_rstd[row] - r), error_bound(r, 0, width + 5)) << rows << " × " << width;
          for (int64_t i = row * width; i < (row + 1) * width; ++i) {
            const double exact = load(stored[i]) * r * (load(w[i % width]) + kOffset);
            ASSERT_LE(std::abs(load(actual[i]) - exact), error_bound(std::abs(exact), kRoundoff<T>, width + 7)) << i;
          }
        }
      }
    }
  });
}

TEST_P(NormOn, BackwardIsTheGradientAndAddsTheWeightsInOrder) {
  with_each_type([&](auto tag) {
    using T = decltype(tag);
    for (const auto& [rows, width] : kShapes) {
      const auto x = numbers<T>(rows * width, 4, 3), dy = numbers<T>(rows * width, 5), w = numbers<T>(width, 6);
      const auto dsum = numbers<T>(rows * width, 7);
      const auto already = numbers<float>(width, 8);
      const auto xs = put(x), dys = put(dy), ws = put(w), dsums = put(dsum);
      std::vector<float> r(static_cast<size_t>(rows));
      std::vector<T> unused(x.size());
      rms_norm_forward(x.data(), w.data(), unused.data(), r.data(), rows, width, kEps, kOffset);
      const auto rstd = put(r);

      std::vector<T> alone;
      for (const bool add : {false, true}) {
        const auto dx = put(garbage<T>(rows * width));
        const auto dw = put(already);
        backward<T>(add ? dsums.data() : nullptr, dys.data(), xs.data(), ws.data(), rstd.data(), dx.data(), dw.data(),
                    rows, width);
        auto expected_dw = already;
        for (int64_t i = 0; i < width; ++i) {
          for (int64_t first = 0; first < rows; first += cuda::kRowsPerPartial) {
            float sum = 0;
            for (int64_t row = first; row < std::min(first + cuda::kRowsPerPartial, rows); ++row) {
              sum += load(dy[row * width + i]) * (load(x[row * width + i]) * r[row]);
            }
            expected_dw[i] += sum;
          }
        }
        expect_same_bits(dw.values(), expected_dw, "dw");
        const auto actual = dx.values();
        if (add) {  // applied to the rounded result
          auto sum = alone;
          for (size_t i = 0; i < sum.size(); ++i) store(sum[i], load(dsum[i]) + load(alone[i]));
          expect_same_bits(actual, sum, "dx with dsum");
          continue;
        }
        alone = actual;
        for (int64_t row = 0; row < rows; ++row) {
          double mean = 0, norm = 0;
          for (int64_t i = 0; i < width; ++i) {
            const double term =
                double{load(dy[row * width + i])} * (load(w[i]) + kOffset) * load(x[row * width + i]) * r[row];
            mean += term / static_cast<double>(width);
            norm += std::abs(term) / static_cast<double>(width);
          }
          for (int64_t i = 0; i < width; ++i) {
            const double scaled = double{load(dy[row * width + i])} * (load(w[i]) + kOffset);
            const double normed = double{load(x[row * width + i])} * r[row];
            const double size = r[row] * (std::abs(scaled) + std::abs(normed) * norm);
            ASSERT_LE(std::abs(load(actual[row * width + i]) - r[row] * (scaled - normed * mean)),
                      error_bound(size, kRoundoff<T>, width + 9))
                << rows << " × " << width;
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace athanor::kernels::norm_test
