#include "layout/orthogonal_scratch.h"

#include <algorithm>

#include "base/matrices_at_once.h"

namespace athanor::inline layout {

double orthogonal_scratch(int64_t batch, int64_t rows, int64_t columns, Orthogonalizer how) {
  const auto at_once = static_cast<double>(std::min(batch, matrices_at_once(rows, columns, how.on_device)));
  const auto side = static_cast<double>(std::min(rows, columns)), square = side * side,
             whole = static_cast<double>(rows) * static_cast<double>(columns), size = how.bf16 ? 2.0 : 4.0;
  if (!how.on_device) return at_once * (2 * size * (whole + square) + (how.bf16 ? 4 * square : 0));
  const double turned = rows > columns ? size * whole : 0;
  return at_once * std::max(2 * size * (whole + square), (how.bf16 ? 4 + size : 4) * whole + turned);
}

}  // namespace athanor::inline layout
