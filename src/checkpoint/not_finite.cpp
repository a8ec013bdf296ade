#include "checkpoint/not_finite.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace athanor::inline checkpoint {
namespace {

uint32_t bits_at(const std::byte* from, int64_t i) {
  uint32_t bits;
  std::memcpy(&bits, from + static_cast<size_t>(i) * sizeof(bits), sizeof(bits));
  return bits;
}
// An exponent of ones is NaN or infinity.
bool is_not_finite(uint32_t bits) {
  constexpr uint32_t kExponent = 0x7F800000;
  return (bits & kExponent) == kExponent;
}

/// Returns the first of `count` elements that is not finite, or -1.
int64_t find_not_finite(const std::byte* from, int64_t count) {
  uint32_t any = 0;  // without a branch, so that the compiler takes several elements at once
  for (int64_t i = 0; i < count; ++i) any |= static_cast<uint32_t>(is_not_finite(bits_at(from, i)));
  if (any == 0) return -1;
  int64_t i = 0;
  while (!is_not_finite(bits_at(from, i))) ++i;
  return i;
}

}  // namespace

void note_not_finite(const std::string& tensor, const Slice& slice, int64_t begin, const std::byte* from, int64_t count,
                     std::optional<NotFinite>& first) {
  const int64_t bad = find_not_finite(from, count);
  if (bad < 0) return;
  const float value = std::bit_cast<float>(bits_at(from, bad));
  const char* name = std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  const int64_t element = begin + bad;
  NotFinite found{tensor, global_position(slice, element), global_index(slice, element), name};
  if (!first || found.before(*first)) first = std::move(found);
}

void check_finite(const std::string& tensor, const Slice& slice, int64_t begin, const std::byte* from, int64_t count) {
  std::optional<NotFinite> found;
  note_not_finite(tensor, slice, begin, from, count, found);
  if (found) throw NumbersError(found->text(), tensor);
}

}  // namespace athanor::inline checkpoint
