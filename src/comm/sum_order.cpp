#include "comm/sum_order.h"

#include <algorithm>
#include <bit>

namespace athanor::comm {

SumOrder sum_order(int64_t ranks, c10::Device device) {
  const int64_t levels = std::bit_width(static_cast<uint64_t>(ranks - 1));
  if (device.is_cpu()) return {levels, 1};
  return {ranks - 1, std::max<int64_t>(1, ranks - 1)};
}

}  // namespace athanor::comm
