#pragma once
// Keys and values of the texts that generation continues, and the new tokens that are added to them.

#include <cstdint>
#include <vector>

#include "ops/attention.h"
#include "ops/cache_attention.h"
#include "ops/rope.h"

namespace athanor::inline model {

/// One layer's keys (rotated) and values: each text has a slot. On the device of the model.
struct KvCache {
  Tensor k, v;  ///< [slots, capacity, kv_heads of this rank, head_dim]
};

/// What a pass through the model appends to caches: the tokens of several texts, one text after the other, as one
/// sequence [1, N]. Each text is either new, with all of its tokens, or has one token that follows those in its slot.
struct NewTokens {
  std::vector<int64_t> slots;    ///< [R], of each text; without new texts 0, 1, …, R − 1
  std::vector<int64_t> lengths;  ///< [R], tokens here
  std::vector<int64_t> past;     ///< [R], tokens in the slot: 0 for all texts, or for none

  int64_t num_texts() const { return static_cast<int64_t>(slots.size()); }
  bool begin_texts() const { return !past.empty() && past.front() == 0; }
};

/// The same, where the model is, in the form that layers read.
struct CachedPass {
  Tensor slots_N, positions_N;     ///< int64, of each token
  Tensor last_R;                   ///< int64, index of each text's last token; undefined if each has one token
  ops::Rotation rotation;          ///< [1, N, head_dim/2]
  ops::DocumentLengths documents;  ///< lengths of new texts, which attend within themselves
  ops::KeyCounts counts;           ///< for texts with one more token, which attends over its slot
};

}  // namespace athanor::inline model
