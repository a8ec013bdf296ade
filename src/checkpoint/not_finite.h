#pragma once
// The first element of a checkpoint that is not finite (NaN or infinite), although it is what was written.

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/slice.h"

namespace athanor::inline checkpoint {

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

}  // namespace athanor::inline checkpoint
