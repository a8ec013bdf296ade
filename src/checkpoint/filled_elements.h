#pragma once
// Records which elements of a slice are filled: one bit each, a thirty-second of the memory of fp32 elements.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace athanor::inline checkpoint {

class FilledElements {
 public:
  explicit FilledElements(int64_t count) : words_(static_cast<size_t>((count + 63) / 64)), count_(count) {}

  /// Fills [first, first + count) and returns how many of these elements were not filled before.
  int64_t fill(int64_t first, int64_t count) {
    int64_t fresh = 0;
    for (int64_t at = first, end = first + count; at < end;) {
      const int64_t bit = at % 64, length = std::min(64 - bit, end - at);
      const uint64_t mask = (length == 64 ? ~uint64_t{0} : (uint64_t{1} << length) - 1) << bit;
      uint64_t& word = words_[static_cast<size_t>(at / 64)];
      fresh += std::popcount(mask & ~word);
      word |= mask;
      at += length;
    }
    num_filled_ += fresh;
    return fresh;
  }
  int64_t num_missing() const { return count_ - num_filled_; }
  /// Returns the first element, counted from 0, that is missing. There must be one.
  int64_t first_missing() const {
    const auto word = std::find_if(words_.begin(), words_.end(), [](uint64_t w) { return ~w != 0; });
    return (word - words_.begin()) * 64 + std::countr_one(*word);
  }

 private:
  std::vector<uint64_t> words_;
  int64_t count_, num_filled_ = 0;
};

}  // namespace athanor::inline checkpoint
