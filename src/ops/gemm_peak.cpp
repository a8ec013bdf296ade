#include "ops/gemm_peak.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "base/number_types.h"
#include "base/wall_clock.h"
#include "ops/tiles.h"
#include "ops/transfer.h"

namespace athanor::ops {
namespace {

using Clock = std::chrono::steady_clock;

// The times of the library's product and of the one that training uses: each is faster on some chips.
struct Times {
  double library_s = INFINITY, ours_s = INFINITY;

  double best() const { return std::min(library_s, ours_s); }
  void take_least(const Times& other) {
    library_s = std::min(library_s, other.library_s);
    ours_s = std::min(ours_s, other.ours_s);
  }
};

Times time_product(Tensor& c, const Tensor& a, const Tensor& b) {
  Times times;
  auto start = Clock::now();
  at::mm_out(c, a, b.t());  // where bf16 is emulated, the form without a transpose takes ten times as long
  times.library_s = seconds_since(start);
  start = Clock::now();
  matmul_into(c, a, b, /*transposed=*/true);
  times.ours_s = seconds_since(start);
  return times;
}

}  // namespace

// The spread on 2 cores of an AMD EPYC with AVX-512 bf16, with 9 calls each: on idle cores 851 to 877 GFLOP/s in bf16
// and 190 to 195 in fp32, with 34 to 45 ms for a call; during a compilation on both cores 74 to 199 and 22 to 38, with
// 56 to 280 ms, since the threads of a product wait for each other. So MFU can be trusted only if the machine was idle
// at start; metrics.gemm_peak_tflops accepts a known figure.
GemmPeak measure_gemm_peak(at::ScalarType dtype) {
  constexpr double kBudget_s = 0.09;
  constexpr int64_t kLargest = 4096;
  const auto start = Clock::now();
  GemmPeak peak;
  // A product of size 1024 takes 5 ms if two cores reach 400 GFLOP/s. A smaller one would mostly measure the
  // synchronisation of its threads, which takes milliseconds if other processes hold the cores. If 1024 is done too
  // soon, larger ones use more cores.
  for (int64_t n = 1024;; n *= 2) {
    const Tensor a = at::full({n, n}, 0.5, dtype), b = at::full({n, n}, 0.5, dtype);
    Tensor c = at::empty({n, n}, dtype);
    time_product(c, a, b);  // the first product of a shape compiles its kernel
    Times least = time_product(c, a, b);
    const bool largest = n == kLargest || 8 * least.best() * 4 > kBudget_s - seconds_since(start);
    while (largest && seconds_since(start) + least.best() < kBudget_s) least.take_least(time_product(c, a, b));
    const double flops = 2.0 * static_cast<double>(n * n * n) / least.best();
    if (flops > peak.flops) {
      peak = {flops, fmt::format("{}, {}", type_name(dtype),
                                 least.ours_s < least.library_s && multiplies_on_tiles(a) ? "our own product"
                                                                                          : "the library's product")};
    }
    if (largest) return peak;
  }
}

GemmPeak measure_gemm_peak(at::ScalarType dtype, at::Device device) {
  constexpr double kBudget_s = 0.1;
  constexpr int64_t kLargest = 8192;
  GemmPeak peak{0, fmt::format("{}, libtorch's product on {}", type_name(dtype), device.str())};
  const auto options = at::TensorOptions(dtype).device(device);
  // The library loads its kernels in its first product, which may take longer than all others.
  at::mm(at::full({512, 512}, 0.5, options), at::full({512, 512}, 0.5, options));
  wait_for(device);
  const auto start = Clock::now();
  for (int64_t n = 1024; n <= kLargest && seconds_since(start) < kBudget_s; n *= 2) {
    const Tensor a = at::full({n, n}, 0.5, options), b = at::full({n, n}, 0.5, options);
    Tensor c = at::empty({n, n}, options);
    for (const int products : {1, 8}) {  // the first one chooses its kernel; several fill the queue
      wait_for(device);
      const auto began = Clock::now();
      for (int i = 0; i < products; ++i) at::mm_out(c, a, b);
      wait_for(device);
      peak.flops = std::max(peak.flops, products * 2.0 * static_cast<double>(n * n * n) / seconds_since(began));
    }
  }
  return peak;
}

GemmPeak measure_best_gemm_peak() {
  const GemmPeak in_fp32 = measure_gemm_peak(at::kFloat);
  if (!has_fast_bf16()) return in_fp32;  // emulated: never faster, and slow to measure
  GemmPeak in_bf16 = measure_gemm_peak(at::kBFloat16);
  return in_bf16.flops > in_fp32.flops ? in_bf16 : in_fp32;
}

GemmPeak measure_gemm_peak_for(const Tensor& weights) {
  return weights.is_cpu() ? measure_best_gemm_peak() : measure_gemm_peak(weights.scalar_type(), weights.device());
}

}  // namespace athanor::ops
