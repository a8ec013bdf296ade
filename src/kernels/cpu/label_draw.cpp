#include "kernels/label_draw.h"

#include <cmath>
#include <limits>

#include "kernels/cross_entropy.h"

namespace athanor::kernels {
namespace {

constexpr int64_t kDrawBlock = 64;

// In (0, 1), with 32 random bits.
ATHANOR_INLINE double uniform_of(uint64_t bits) { return (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32; }

// E = −log(1 − U) is at least U. So only an id with U ≤ exp(logit − largest) can win, and the others need no logarithm.
template <class T>
ATHANOR_INLINE void mark_candidates(const T* logits, int64_t count, uint64_t key, uint64_t counter, float largest,
                                    uint8_t* marks) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const auto upper = static_cast<uint32_t>(draw_bits(key, counter + static_cast<uint64_t>(i)) >> 32);
    const float least = static_cast<float>(upper) * 0x1p-32f * 0.9999f;  // below U, whatever the roundings
    marks[i] = least <= exp_fast(load(logits[i]) - largest) ? 1 : 0;
  }
}

template <class T>
ATHANOR_INLINE void draw_row(const DrawRows& draw, const T* logits, uint64_t counter, float& out, int64_t& id) {
  double largest = -std::numeric_limits<double>::infinity();
  id = draw.first_id;
  uint8_t marks[kDrawBlock];
  for (int64_t begin = 0; begin < draw.width; begin += kDrawBlock) {
    const int64_t count = kDrawBlock < draw.width - begin ? kDrawBlock : draw.width - begin;
    const uint64_t at = counter + static_cast<uint64_t>(begin);
    mark_candidates(logits + begin, count, draw.key, at, static_cast<float>(largest), marks);
    for (int64_t i = 0; i < count; ++i) {
      if (!marks[i]) continue;
      const double uniform = uniform_of(draw_bits(draw.key, at + static_cast<uint64_t>(i)));
      const double value = double{load(logits[begin + i])} - std::log(-std::log1p(-uniform));
      if (value > largest) largest = value, id = draw.first_id + begin + i;
    }
  }
  out = static_cast<float>(largest);
}

template <class T>
ATHANOR_INLINE void draw_rows(const DrawRows& draw, const T* logits, const int64_t* targets, float* largest,
                              int64_t* ids) {
  for (int64_t r = 0; r < draw.rows; ++r) {
    if (targets[r] == kNoTarget) {
      largest[r] = -std::numeric_limits<float>::infinity(), ids[r] = kNoTarget;
      continue;
    }
    const auto counter = static_cast<uint64_t>((draw.first_row + r) * draw.vocab_size + draw.first_id);
    draw_row(draw, logits + r * draw.width, counter, largest[r], ids[r]);
  }
}

ATHANOR_EACH_ISA void draw_fp32(const DrawRows& draw, const float* logits, const int64_t* targets, float* largest,
                                int64_t* ids) {
  draw_rows(draw, logits, targets, largest, ids);
}
ATHANOR_EACH_ISA void draw_bf16(const DrawRows& draw, const Bf16* logits, const int64_t* targets, float* largest,
                                int64_t* ids) {
  draw_rows(draw, logits, targets, largest, ids);
}

}  // namespace

template <>
void draw_labels(const DrawRows& draw, const float* logits, const int64_t* targets, float* largest, int64_t* ids) {
  draw_fp32(draw, logits, targets, largest, ids);
}
template <>
void draw_labels(const DrawRows& draw, const Bf16* logits, const int64_t* targets, float* largest, int64_t* ids) {
  draw_bf16(draw, logits, targets, largest, ids);
}

}  // namespace athanor::kernels
