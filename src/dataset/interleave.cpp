#include "dataset/interleave.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace athanor::inline dataset {
namespace {

// __extension__: ISO C++ has no 128-bit integer.
__extension__ using Wide = __int128;

constexpr double kTotal = 0x1p50;

}  // namespace

Interleave::Interleave(const std::vector<double>& weights) {
  ATHANOR_CHECK(!weights.empty(), "the mix is empty: give it at least one source");
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;  // sum of weights relative to the largest, which cannot overflow
  for (const double weight : weights) {
    ATHANOR_CHECK(std::isfinite(weight) && weight > 0, "weight {}: a source's weight is a finite number above 0",
                  weight);
    sum += weight / largest;
  }
  for (const double weight : weights) {
    weights_.push_back(std::max<int64_t>(1, std::llround(weight / largest / sum * kTotal)));
  }
  total_ = std::accumulate(weights_.begin(), weights_.end(), int64_t{0});
}

double Interleave::share(size_t source) const {
  return static_cast<double>(weights_[source]) / static_cast<double>(total_);
}

// 1 / parts() is what the bound on the error of a share lacks to one sample.
int64_t Interleave::parts() const { return std::max<int64_t>(2 * std::ssize(weights_) - 2, 1); }

int64_t Interleave::most_drawn(size_t source, int64_t n) const {
  const Wide parts = this->parts();
  return static_cast<int64_t>((static_cast<Wide>(weights_[source]) * n * parts + (parts - 1) * total_) /
                              (parts * total_));
}

size_t Interleave::next(std::vector<int64_t>& drawn) const {
  ATHANOR_ASSERT(drawn.size() == weights_.size());
  const auto n = std::accumulate(drawn.begin(), drawn.end(), int64_t{1});
  const Wide parts = this->parts();
  size_t best = weights_.size();
  Wide best_slack = 0;
  for (size_t i = 0; i < weights_.size(); ++i) {
    // All values are in units of 1 / (total * parts): how much source i would be owed after this sample, and how far
    // that is from the bound. Divided by its weight the latter is the deadline, which is compared here without a
    // division.
    const Wide lag = (static_cast<Wide>(weights_[i]) * n - static_cast<Wide>(total_) * drawn[i]) * parts;
    if (lag < total_) continue;
    const Wide slack = (parts - 1) * total_ - lag;
    if (best == weights_.size() || slack * weights_[best] < best_slack * weights_[i]) {
      best = i;
      best_slack = slack;
    }
  }
  ATHANOR_ASSERT(best < weights_.size());
  ++drawn[best];
  return best;
}

}  // namespace athanor::inline dataset
