#include "train/verify/noise_ratio.h"

#include <algorithm>
#include <cmath>

namespace athanor {

double noise_ratio(double freedom) { return std::exp(std::acosh(std::pow(kChanceOnce, -1 / std::max(1.0, freedom)))); }

double freedom_of(int64_t elements, int64_t width) {
  constexpr int64_t kMost = 32;
  return static_cast<double>(std::min({elements, width, kMost})) / 2;
}

double PooledNoise::relative(double square) const { return std::sqrt(size_ > 0 ? square / size_ : square); }

double PooledNoise::error() const { return relative(layout_); }

double PooledNoise::bound() const { return noise_ratio(freedom_) * relative(one_); }

}  // namespace athanor
