#pragma once
// Finds the largest numbers of a row, for kernels.

#include <bit>

#include "kernels/cuda/launch.h"

namespace athanor::kernels::cuda {

// Larger scores have larger keys; of equal scores (−0 is 0) the lower index has the larger key. 0 is below every key.
ATHANOR_INLINE unsigned long long key_of(float score, int64_t index) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // −0 + 0 = 0
  const uint32_t ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(index));
}

ATHANOR_INLINE int64_t index_of(unsigned long long key) {
  return static_cast<int64_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}

/// The longest row whose indices fit into keys.
constexpr int64_t kLongestRow = 0xFFFFFFFF;

/// Writes the indices of the k largest numbers of `row` [width] to ids [k], the largest first.
ATHANOR_INLINE void top_k_of(const Team<kWarp>& team, const float* row, int64_t width, int64_t* ids, int64_t k) {
  // The k passes read a row that stays in the first-level cache; each takes the largest key below the previous one.
  unsigned long long last = ~0ull;
  for (int64_t j = 0; j < k; ++j) {
    last = team.max<unsigned long long>([=](int thread) {
      unsigned long long best = 0;
      for (int64_t e = thread; e < width; e += kWarp) {
        const unsigned long long key = key_of(row[e], e);
        if (key < last && key > best) best = key;
      }
      return best;
    });
    team.each([=](int thread) {
      if (thread == 0) ids[j] = index_of(last);
    });
  }
}

}  // namespace athanor::kernels::cuda
