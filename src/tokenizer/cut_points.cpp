#include "tokenizer/cut_points.h"

#include <algorithm>
#include <bit>

namespace athanor::inline tokenizer {

CutPoints::CutPoints(const SymbolTable& symbols, const std::vector<Border>& crossed, bool bytes_merge)
    : symbols_(&symbols), bytes_merge_(bytes_merge) {
  // 16 bits for each border keep chance collisions to one pair in 16 or fewer, up to 256 KiB.
  const size_t num_bits = std::bit_ceil(std::clamp<size_t>(crossed.size() * 16, 1 << 10, 1 << 21));
  shift_ = 64 - std::countr_zero(num_bits);
  crossed_.resize(num_bits / 64);
  for (const auto [left, right] : crossed) {
    const size_t bit = bit_of(left, right);
    crossed_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  for (uint32_t left = 0; left < kAscii; ++left) {
    for (uint32_t right = 0; right < kAscii; ++right) ascii_[left * kAscii + right] = may_cut_any(left, right);
  }
}

}  // namespace athanor::inline tokenizer
