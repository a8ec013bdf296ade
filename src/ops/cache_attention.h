#pragma once
// Attention over caches of keys and values, for generation: one new token of each of several texts of different
// lengths.

#include <algorithm>
#include <vector>

#include "ops/attention.h"

namespace athanor::ops {

/// How many keys the new token of each text sees, itself included.
struct KeyCounts {
  std::vector<int64_t> of_row;  ///< with those that a window hides
  int64_t window = 0;           ///< AttentionOptions::window
  /// bool [rows, 1, 1, keys of the longest text], on a device: what each row sees (keys_seen). Undefined: it is made
  /// and sent by each call.
  Tensor seen = {};

  int64_t most() const;
  /// The first key that row r sees.
  int64_t first(size_t r) const { return window > 0 ? std::max<int64_t>(0, of_row[r] - window) : 0; }
};

/// Returns KeyCounts::seen for rows whose newest token is at these positions, int64 [rows], there; nothing is sent.
Tensor keys_seen(const Tensor& positions, int64_t most, int64_t window = 0);
/// Returns `counts` of these rows with what attention on the device of `positions` reads of them, so that its calls for
/// all layers share it.
KeyCounts with_keys_seen(KeyCounts counts, const Tensor& positions);

/// Attention without autograd: q [rows, heads, head_dim] → [rows, heads, head_dim]. Row r attends to the keys from
/// counts.first(r) up to counts.of_row[r] of row r of k and v, [at least rows, capacity, kv_heads, head_dim]. The
/// window of `options` is not read; the counts have it. On the CPU no bits of a row depend on the other rows; on a
/// device the library's kernel may cut its sums by the longest row.
Tensor cache_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyCounts& counts,
                       const AttentionOptions& options = {});

namespace portable {
/// Computes dense scores, row by row, in fp32.
Tensor cache_attention(const Tensor& q, const Tensor& k, const Tensor& v, const KeyCounts& counts,
                       const AttentionOptions& options = {});
}  // namespace portable

}  // namespace athanor::ops
