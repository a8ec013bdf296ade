#include "verify/noise_ratio.h"

#include <algorithm>
#include <cmath>

namespace athanor::inline verify {

double noise_ratio(double freedom) { return std::exp(std::acosh(std::pow(kChanceOnce, -1 / std::max(1.0, freedom)))); }

double freedom_of(int64_t elements, int64_t width) {
  constexpr int64_t kMost = 32;
  return static_cast<double>(std::min({elements, width, kMost})) / 2;
}

void PooledNoise::pool(double layout, double one, double size, double freedom, double weight) {
  layout_ += layout, one_ += one, size_ += size;
  if (size == 0 && layout == 0) return;  // absent: an expert without tokens
  weights_ += weight, squared_weights_ += weight * weight / freedom;
}

double PooledNoise::relative(double square) const { return std::sqrt(size_ > 0 ? square / size_ : square); }

// If one step has most of the error, it has most of the degrees of freedom (Satterthwaite, Biometrics Bulletin 1946).
double PooledNoise::bound() const {
  const double freedom = squared_weights_ > 0 ? weights_ * weights_ / squared_weights_ : 1;
  return noise_ratio(freedom) * relative(one_);
}

}  // namespace athanor::inline verify
