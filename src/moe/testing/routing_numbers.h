#pragma once
// For tests: the numbers in Routing::counts.

#include "moe/router.h"

namespace athanor::moe {

struct RoutingNumbers {
  int64_t moved, dropped, flat;
  double entropy_sum;
};

inline RoutingNumbers numbers_of(const Routing& routing) {
  const Tensor four = routing.counts.narrow(0, routing.counts.size(0) - 4, 4);
  const auto* number = four.const_data_ptr<int64_t>();
  return {number[0], number[1], number[2], four.narrow(0, 3, 1).view(at::kDouble).item<double>()};
}

}  // namespace athanor::moe
