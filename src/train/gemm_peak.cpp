#include "train/gemm_peak.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "ops/tiles.h"

namespace athanor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The faster of the library's product and the one that training uses: each is the better one on some chips.
double time_product(at::Tensor& c, const at::Tensor& a, const at::Tensor& b) {
  auto start = Clock::now();
  at::mm_out(c, a, b);
  const double library_s = seconds_since(start);
  if (!ops::multiplies_on_tiles(a)) return library_s;
  start = Clock::now();
  ops::matmul_into(c, a, b, /*transposed=*/true);
  return std::min(library_s, seconds_since(start));
}

}  // namespace

// Its spread, 2 cores of an AMD EPYC with AVX-512 bf16, 9 calls each: on cores of its own 851 to 877 GFLOP/s in bf16
// and 190 to 195 in fp32, 34 to 45 ms a call; beside a compilation on both cores 74 to 199 and 22 to 38, 56 to 280 ms,
// since the threads of a product wait for each other. So MFU is to be trusted only if the machine was idle at start;
// metrics.gemm_peak_tflops takes a figure that is known.
double measure_gemm_peak_flops(at::ScalarType dtype) {
  constexpr double kBudget_s = 0.045;
  constexpr int64_t kLargest = 4096;
  const auto start = Clock::now();
  double best_flops = 0;
  // 1024 takes 5 ms where two cores make 400 GFLOP/s. A smaller one would measure how its threads meet, which costs
  // milliseconds where other processes hold the cores; where 1024 is over at once, larger ones fill more cores.
  for (int64_t n = 1024;; n *= 2) {
    const at::Tensor a = at::full({n, n}, 0.5, dtype), b = at::full({n, n}, 0.5, dtype);
    at::Tensor c = at::empty({n, n}, dtype);
    time_product(c, a, b);  // the first product of a shape compiles its kernel
    double best_s = time_product(c, a, b);
    const bool largest = n == kLargest || 8 * best_s * 4 > kBudget_s - seconds_since(start);
    while (largest && seconds_since(start) + best_s < kBudget_s) best_s = std::min(best_s, time_product(c, a, b));
    best_flops = std::max(best_flops, 2.0 * static_cast<double>(n * n * n) / best_s);
    if (largest) return best_flops;
  }
}

}  // namespace athanor
