// Sums of squares and matrix products whose running sums are rounded to bf16, fp16 or fp32 after each term, as a kernel
// does that keeps its sum in that type. bench/wide/run compiles and loads this.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/half.h"

namespace {

// Products of two numbers of 8 or 11 bits are exact in fp32, so a term is rounded once.
struct InBf16 {
  static float round(float x) { return athanor::bf16_to_float(athanor::bf16_from_float(x)); }
};
struct InFp16 {
  static float round(float x) {
    const float magnitude = std::abs(x);
    if (!(magnitude >= 0x1p-14f)) return std::nearbyint(x * 0x1p24f) * 0x1p-24f;  // subnormal: multiples of 2^-24
    const auto bits = std::bit_cast<uint32_t>(x);
    const float rounded = std::bit_cast<float>((bits + 0xFFF + ((bits >> 13) & 1)) & ~uint32_t{0x1FFF});
    return std::abs(rounded) > 65504.0f ? std::copysign(std::numeric_limits<float>::infinity(), x) : rounded;
  }
};
struct InFp32 {
  static float round(float x) { return x; }
};

template <class F>
void with_type(int type, F f) {
  type == 0 ? f(InBf16{}) : type == 1 ? f(InFp16{}) : f(InFp32{});
}

}  // namespace

// The sum of n squares in `lanes` running sums, each over neighbouring elements, which are then added in order.
extern "C" double sum_of_squares(const float* x, int64_t n, int64_t lanes, int type) {
  float total = 0;
  with_type(type, [&](auto in) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      float sum = 0;
      for (int64_t i = lane * n / lanes; i < (lane + 1) * n / lanes; ++i) sum = in.round(sum + in.round(x[i] * x[i]));
      total = in.round(total + sum);
    }
  });
  return total;
}

// c [m, n] = a [m, k] b [k, n], row-major.
extern "C" void multiply(const float* a, const float* b, float* c, int64_t m, int64_t k, int64_t n, int type) {
  with_type(type, [&](auto in) {
    std::vector<float> sums(static_cast<size_t>(n));
    for (int64_t i = 0; i < m; ++i) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t p = 0; p < k; ++p) {
        const float factor = a[i * k + p];
        const float* row = b + p * n;
        for (int64_t j = 0; j < n; ++j)
          sums[static_cast<size_t>(j)] = in.round(sums[static_cast<size_t>(j)] + factor * row[j]);
      }
      std::copy(sums.begin(), sums.end(), c + i * n);
    }
  });
}
