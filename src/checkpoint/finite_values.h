#pragma once
// Weights that are not finite are refused wherever a model changes its form: nothing that it computes means anything.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

namespace athanor::inline checkpoint {

/// @param first  the place of values[0] in the tensor.
/// @param where  the model, for the message. @throws CheckpointError naming the first value that is not finite.
inline void require_finite(std::span<const float> values, const std::string& tensor, int64_t first,
                           const std::string& where) {
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  ATHANOR_CHECK_CHECKPOINT(bad == values.end(),
                           "{}: element {} of {} is {}, so that nothing which the model computes would mean anything; "
                           "take another model or an older checkpoint",
                           where, first + (bad - values.begin()), tensor, std::isnan(*bad) ? "nan" : "infinite");
}

}  // namespace athanor::inline checkpoint
