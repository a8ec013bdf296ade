#pragma once
// Elements that are not finite (NaN or infinite), although they are what was written.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "checkpoint/slice.h"

namespace athanor::inline checkpoint {

/// The first such element of a checkpoint.
struct NotFinite {
  std::string tensor;    ///< KIND/NAME, see manifest.h
  int64_t position = 0;  ///< row-major, in the whole tensor
  Shape index = {};      ///< the same, one number for each dim
  std::string value;     ///< "nan", "inf" or "-inf"

  /// Whether it comes first: by the tensor's name, then by the position, so that the layout of ranks does not matter.
  bool before(const NotFinite& other) const {
    return tensor != other.tensor ? tensor < other.tensor : position < other.position;
  }
  std::string text() const { return fmt::format("element {} of {} is {}", shape_text(index), tensor, value); }
};

/// Looks for an element that is not finite among `count` floats at any address, which are those of `slice` from `begin`
/// on. Keeps it in `first` unless another one there comes first.
void note_not_finite(const std::string& tensor, const Slice& slice, int64_t begin, const std::byte* from, int64_t count,
                     std::optional<NotFinite>& first);

/// @throws NumbersError with the text of the first element of these that is not finite, if there is one.
void check_finite(const std::string& tensor, const Slice& slice, int64_t begin, const std::byte* from, int64_t count);

/// Refuses weights that are not finite, wherever a model changes its form: nothing that it computes means anything.
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
