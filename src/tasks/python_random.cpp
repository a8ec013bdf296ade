#include "tasks/python_random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <unordered_set>

#include "base/error.h"

namespace athanor::tasks {
namespace {

constexpr int kStateSize = 624, kShift = 397;
constexpr uint32_t kMatrix = 0x9908B0DF, kUpperBit = 0x80000000, kLowerBits = 0x7FFFFFFF;

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) {
  // The seed's words of 32 bits, lowest first, are the key of the reference's init_by_array.
  std::vector<uint32_t> key{static_cast<uint32_t>(seed)};
  if (seed >> 32) key.push_back(static_cast<uint32_t>(seed >> 32));
  state_[0] = 19650218;
  for (uint32_t i = 1; i < kStateSize; ++i) state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  uint32_t i = 1, j = 0;
  const auto step_over_end = [&] {
    if (++i < kStateSize) return;
    state_[0] = state_[kStateSize - 1];
    i = 1;
  };
  for (int k = kStateSize; k > 0; --k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525U)) + key[j] + j;
    step_over_end();
    if (++j == key.size()) j = 0;
  }
  for (int k = kStateSize - 1; k > 0; --k) {
    state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941U)) - i;
    step_over_end();
  }
  state_[0] = kUpperBit;
}

uint32_t PythonRandom::next() {
  if (at_ == kStateSize) {
    for (int k = 0; k < kStateSize; ++k) {
      const uint32_t mixed = (state_[k] & kUpperBit) | (state_[(k + 1) % kStateSize] & kLowerBits);
      state_[k] = state_[(k + kShift) % kStateSize] ^ (mixed >> 1) ^ (mixed & 1 ? kMatrix : 0);
    }
    at_ = 0;
  }
  uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9D2C5680U;
  y ^= (y << 15) & 0xEFC60000U;
  return y ^ (y >> 18);
}

uint32_t PythonRandom::random_bits(int k) { return next() >> (32 - k); }

uint64_t PythonRandom::below(uint64_t n) {
  ATHANOR_ASSERT(n > 0 && n < (uint64_t{1} << 32));
  const int bits = std::bit_width(n);
  uint64_t drawn = random_bits(bits);
  while (drawn >= n) drawn = random_bits(bits);
  return drawn;
}

std::vector<uint64_t> PythonRandom::sample(uint64_t n, uint64_t k) {
  ATHANOR_ASSERT(k <= n);
  std::vector<uint64_t> taken(k);
  // A list of all positions is smaller than a set of k of them up to this n: 21, or for k > 5 more by 4^⌈log4 3k⌉.
  uint64_t pool_size = 21;
  if (k > 5) {
    uint64_t power = 1;
    while (power < 3 * k) power *= 4;
    pool_size += power;
  }
  if (n <= pool_size) {
    std::vector<uint64_t> pool(n);
    std::iota(pool.begin(), pool.end(), uint64_t{0});
    for (uint64_t i = 0; i < k; ++i) {
      const uint64_t j = below(n - i);
      taken[i] = pool[j];
      pool[j] = pool[n - i - 1];
    }
    return taken;
  }
  std::unordered_set<uint64_t> selected;
  for (uint64_t i = 0; i < k; ++i) {
    uint64_t j = below(n);
    while (!selected.insert(j).second) j = below(n);
    taken[i] = j;
  }
  return taken;
}

}  // namespace athanor::tasks
