#pragma once
// Random numbers as a function of counters: no generator, no hidden state.
//
// A number is a function of (key, index), and the key of (seed, name). So a tensor's element does not depend on the
// rank that draws it or on the order of draws, and a run can be interrupted anywhere. The arithmetic is in
// counter_normal.h.

#include <array>
#include <cstdint>
#include <string_view>

#include "base/counter_normal.h"

namespace athanor {

/// A stream of independent numbers, addressed by index. The numbers that different functions return for one index share
/// bits.
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, std::string_view name);

  /// Returns 128 random bits for `index`.
  std::array<uint32_t, 4> bits(uint64_t index) const;
  uint64_t u64(uint64_t index) const;
  /// Returns a number in [0, 1) with 53 random bits.
  double uniform(uint64_t index) const;
  /// Returns a standard normal number, by Box-Muller: bits(i / 2) give the numbers of indices i and i + 1 for even i.
  double normal(uint64_t index) const;
  /// Writes normal(i) · scale for i in [begin, end) to `out` as fp32: the same values at half the cost.
  void fill_normal(float* out, uint64_t begin, uint64_t end, double scale) const;
  /// Returns a number in [0, bound), with negligible modulo bias if bound is well below 2^64.
  uint64_t below(uint64_t index, uint64_t bound) const;

  const CounterKey& key() const { return key_; }

 private:
  CounterKey key_;
};

/// A bijection of [0, size) chosen by (seed, name), evaluated one element at a time in O(1) memory:
/// a Feistel network over the next power of four, walked along its cycle until it lands inside (Black and Rogaway
/// 2002).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, std::string_view name);
  uint64_t size() const { return size_; }
  /// Returns the value that `index` maps to; both are below size().
  uint64_t operator()(uint64_t index) const;
  /// Returns the index that maps to `value`.
  uint64_t inverse(uint64_t value) const;

 private:
  uint64_t round(uint64_t half, int round) const;
  uint64_t forward_once(uint64_t value) const;
  uint64_t backward_once(uint64_t value) const;

  uint64_t size_;
  int half_bits_;
  uint64_t half_mask_;
  CounterRandom random_;
};

}  // namespace athanor
