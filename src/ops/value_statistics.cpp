#include "ops/value_statistics.h"

#include <bit>
#include <cmath>
#include <mutex>
#include <vector>

#include "kernels/adamw.h"

namespace athanor::ops {
namespace {

constexpr int64_t kHostBlock = int64_t{1} << 16;
constexpr int64_t kDeviceBlock = int64_t{1} << 22;  // bounds the memory that bins take on a device
constexpr int64_t kSquares = 0, kSum = 1, kCounts = 2;

// Adds up sum(block begin, size) over blocks of [0, count) in order, whatever the threads.
template <class Sum>
double sum_of_blocks(int64_t count, Sum sum) {
  std::vector<double> sums(static_cast<size_t>((count + kHostBlock - 1) / kHostBlock));
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      sums[static_cast<size_t>(i)] = sum(i * kHostBlock, std::min(kHostBlock, count - i * kHostBlock));
  });
  double total = 0;
  for (const double each : sums) total += each;
  return total;
}

void add_on_host(const Tensor& x, const Tensor& into) {
  const float* values = pointer<float>(x);
  auto* sums = into.data_ptr<double>();
  sums[kSquares] += sum_of_blocks(
      x.numel(), [&](int64_t begin, int64_t size) { return kernels::sum_of_squares(values + begin, size); });
  if (into.numel() == 1) return;
  std::mutex mutex;
  sums[kSum] += sum_of_blocks(x.numel(), [&](int64_t begin, int64_t size) {
    double sum = 0;
    std::vector<double> here(HistogramBins::kBins);
    for (int64_t i = begin; i < begin + size; ++i) {
      sum += values[i];
      ++here[static_cast<size_t>(HistogramBins::bin_of(values[i]))];
    }
    const std::lock_guard lock(mutex);  // whole numbers: their order does not matter
    for (size_t bin = 0; bin < here.size(); ++bin) sums[kCounts + static_cast<int64_t>(bin)] += here[bin];
    return sum;
  });
}

// Returns the bins (HistogramBins::bin_of) of fp32 values, where they are.
Tensor bins_of(const Tensor& values) {
  using Bins = HistogramBins;
  const Tensor magnitude = values.view(at::kInt).bitwise_and(0x7fffffff).bitwise_right_shift(22);
  const Tensor above = magnitude - 2 * (127 + Bins::kLowest);
  const Tensor outwards = above.clamp_max(Bins::kMagnitudes - 1);
  const Tensor signed_bin = at::where(values.lt(0), Bins::kMagnitudes - 1 - outwards, Bins::kMagnitudes + 1 + outwards);
  return signed_bin.masked_fill(above.lt(0), Bins::kMagnitudes).to(at::kLong);
}

// Counts are whole numbers, so that it does not matter in which order a device adds them.
void add_there(const Tensor& values, const Tensor& sums) {
  for (int64_t begin = 0; begin < values.numel(); begin += kDeviceBlock) {
    const Tensor block = values.narrow(0, begin, std::min(kDeviceBlock, values.numel() - begin));
    sums[kSquares].add_(squares_of(block));
    if (sums.numel() == 1) continue;
    sums[kSum].add_(block.sum(at::kDouble));
    const Tensor bins = bins_of(block);
    const Tensor counts = at::zeros({HistogramBins::kBins}, bins.options()).scatter_add_(0, bins, at::ones_like(bins));
    sums.narrow(0, kCounts, HistogramBins::kBins).add_(counts);
  }
}

}  // namespace

int HistogramBins::bin_of(float value) {
  const auto magnitude = static_cast<int>(std::bit_cast<uint32_t>(std::abs(value)) >> 22);  // exponent and one more bit
  const int above = magnitude - 2 * (127 + kLowest);                                        // 127: fp32's bias
  if (above < 0) return kMagnitudes;
  const int outwards = std::min(above, kMagnitudes - 1);
  return value < 0 ? kMagnitudes - 1 - outwards : kMagnitudes + 1 + outwards;
}

double HistogramBins::upper_edge(int bin) {
  const auto edge = [](int i) { return std::ldexp(i % 2 == 0 ? 1.0 : 1.5, kLowest + i / 2); };
  return bin < kMagnitudes ? -edge(kMagnitudes - 1 - bin) : edge(bin - kMagnitudes);
}

Tensor squares_of(const Tensor& x) {
  if (!x.is_cpu()) return at::linalg_vector_norm(x, 2, {}, false, at::kDouble).square();
  const Tensor flat = x.reshape({-1});
  const double sum = sum_of_blocks(flat.numel(), [&](int64_t begin, int64_t size) {
    const Tensor block = flat.narrow(0, begin, size).to(at::kFloat);
    return kernels::sum_of_squares(block.const_data_ptr<float>(), size);
  });
  return at::scalar_tensor(sum, at::kDouble);
}

Tensor squared_change(const Tensor& after, const Tensor& before) {
  if (!after.is_cpu()) return squares_of(after.to(at::kDouble) - before);
  const float *now = pointer<float>(after), *then = pointer<float>(before);
  const double sum = sum_of_blocks(after.numel(), [&](int64_t begin, int64_t size) {
    double squares = 0;
    for (int64_t i = begin; i < begin + size; ++i) {
      const double change = static_cast<double>(now[i]) - then[i];
      squares += change * change;
    }
    return squares;
  });
  return at::scalar_tensor(sum, at::kDouble);
}

void sum_into(const Tensor& x, Tensor sum) {
  if (x.is_cpu()) {
    sum.fill_(x.sum());  // in the type of the values: libtorch converts those of 16 bits one by one otherwise
  } else {
    at::sum_out(sum, x.reshape({-1}), 0, /*keepdim=*/false, at::kFloat);
  }
}

void add_statistics(const Tensor& values, const Tensor& sums) {
  return values.is_cpu() ? add_on_host(values, sums) : add_there(values, sums);
}

}  // namespace athanor::ops
