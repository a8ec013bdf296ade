#include "kernels/cuda/noise.h"

#include <cmath>

#include "kernels/cuda/launch.h"

namespace athanor::kernels::cuda {

void fill_normal(const Stream& stream, const CounterKey& key, float* out, int64_t first, int64_t count, double scale) {
  const int64_t first_pair = first / 2, end = first + count;
  // One index makes both numbers of a pair, of which the first and the last pair may need one.
  for_each_index(stream, "fill_normal", (end + 1) / 2 - first_pair, [=] ATHANOR_BODY(int64_t i) {
    const int64_t pair = first_pair + i;
    const NormalPair of = normal_pair(counter_bits(key, static_cast<uint64_t>(pair)));
    const double radius = std::sqrt(of.squared_radius);
    if (2 * pair >= first && 2 * pair < end) out[2 * pair - first] = static_cast<float>(radius * of.cosine * scale);
    if (2 * pair + 1 < end) out[2 * pair + 1 - first] = static_cast<float>(radius * of.sine * scale);
  });
}

}  // namespace athanor::kernels::cuda
