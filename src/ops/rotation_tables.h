#pragma once
// Rotary angles of whole batches where attention reads them: computed on the host, so that every device has the same,
// and sent in one copy.

#include <cstdint>
#include <map>
#include <utility>

#include "ops/attention.h"
#include "ops/rope.h"

namespace athanor::ops {

/// How positions turn pairs of dims, on the host.
struct RotaryFrequencies {
  Tensor frequency;     ///< [head_dim/2], fp32: the angle from one position to the next, in radians
  Tensor scale = {};    ///< [head_dim/2], fp32: factors of cos and sin; undefined: 1
  Tensor of_long = {};  ///< the frequencies in sequences of more than `short_tokens` tokens; undefined: the same
  int64_t short_tokens = 0;
};

class RotationTables {
 public:
  RotationTables(RotaryFrequencies frequencies, at::Device device);

  /// Returns the angles of positions, int64 of the host, in any shape, in sequences that are not long.
  Rotation of_positions(const Tensor& positions) const;

  /// Returns the angles [batch, seq_len, head_dim/2] of tokens whose positions begin at 0 in each document, or without
  /// documents in each sequence. A device keeps the angles of whole sequences, and takes those of documents from them;
  /// the documents need their tables there (with_tables).
  Rotation of_sequences(int64_t batch, int64_t seq_len, const DocumentLengths& documents);

 private:
  /// The angles in sequences of seq_len tokens, on the device.
  Rotation make(const Tensor& positions, int64_t seq_len) const;
  Rotation of_sequences_there(int64_t batch, int64_t seq_len, const DocumentLengths& documents);

  RotaryFrequencies frequencies_;
  at::Device device_;
  /// By rows and tokens. Those of training are kept for as long as this lives, since graphs of steps read them; of
  /// evaluation, whose texts have any length, only the last.
  using Kept = std::map<std::pair<int64_t, int64_t>, Rotation>;
  Kept of_training_, of_evaluation_;
};

}  // namespace athanor::ops
