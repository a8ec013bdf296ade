#include "optim/noise_scale.h"

#include <algorithm>
#include <limits>

namespace athanor::inline optim {

NoiseEstimate estimate_noise(std::span<const PartSquares> groups, int64_t sequences) {
  NoiseEstimate sum;
  for (const PartSquares& group : groups) {
    if (group.num_parts < 2) continue;
    const auto n = static_cast<double>(group.num_parts);
    sum.gradient_squared += (group.whole - group.parts) / (1 - 1 / n);
    sum.variance += static_cast<double>(sequences) * (group.parts - group.whole / n) / (1 - 1 / n);
  }
  return sum;
}

void NoiseScale::add(const NoiseEstimate& estimate) {
  const double weight = std::max(kNewest, 1 / static_cast<double>(++num_));
  mean_.gradient_squared += weight * (estimate.gradient_squared - mean_.gradient_squared);
  mean_.variance += weight * (estimate.variance - mean_.variance);
}

double NoiseScale::value() const {
  return mean_.gradient_squared > 0 ? mean_.variance / mean_.gradient_squared
                                    : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace athanor::inline optim
