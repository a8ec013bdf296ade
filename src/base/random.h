#pragma once
// Random numbers as a function of counters: no generator, no hidden state.
//
// A number is drawn from (key, index); the key from (seed, name). So a tensor's element does not depend on who draws
// it or in which order, and a run can be cut anywhere. Philox4x32-10: Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", SC 2011.

#include <array>
#include <cstdint>
#include <string_view>

namespace athanor {

/// A stream of independent numbers, addressed by index.
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, std::string_view name);

  /// 128 random bits for `index`.
  std::array<uint32_t, 4> bits(uint64_t index) const;
  uint64_t u64(uint64_t index) const;
  /// In [0, 1), 53 bits.
  double uniform(uint64_t index) const;
  /// Standard normal, by Box-Muller; element i uses half of block i / 2.
  double normal(uint64_t index) const;
  /// normal(begin), …, normal(end − 1) · scale as fp32 into out[0…], the same values at half the cost.
  void fill_normal(float* out, uint64_t begin, uint64_t end, double scale) const;
  /// In [0, bound), without modulo bias worth the name (bound well below 2^64).
  uint64_t below(uint64_t index, uint64_t bound) const;

 private:
  std::array<double, 2> normal_pair(uint64_t pair) const;

  uint64_t key_, stream_;
};

/// A bijection of [0, size) chosen by (seed, name), evaluated one element at a time in O(1) memory:
/// a Feistel network over the next power of four, walked along its cycle until it lands inside (Black and Rogaway
/// 2002).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, std::string_view name);
  uint64_t size() const { return size_; }
  uint64_t operator()(uint64_t index) const;
  /// The index that maps to `value`.
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
