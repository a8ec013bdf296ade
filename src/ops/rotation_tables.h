#pragma once
// Rotary angles of whole batches where attention reads them: computed on the host, so that every device has the same,
// and sent in one copy.

#include <cstdint>
#include <map>
#include <utility>

#include "ops/attention.h"
#include "ops/rope.h"

namespace athanor::ops {

class RotationTables {
 public:
  /// @param frequency, scale  as in make_rotation, on the host.
  RotationTables(Tensor frequency, double scale, at::Device device);

  /// Returns the angles of positions, int64 of the host, in any shape.
  Rotation of_positions(const Tensor& positions) const;

  /// Returns the angles [batch, seq_len, head_dim/2] of tokens whose positions begin at 0 in each document, or without
  /// documents in each sequence. A device keeps the angles of whole sequences, and takes those of documents from them;
  /// the documents need their tables there (with_tables).
  Rotation of_sequences(int64_t batch, int64_t seq_len, const DocumentLengths& documents);

 private:
  Rotation of_sequences_there(int64_t batch, int64_t seq_len, const DocumentLengths& documents);

  Tensor frequency_;
  double scale_;
  at::Device device_;
  /// By rows and tokens. Those of training are kept for as long as this lives, since graphs of steps read them; of
  /// evaluation, whose texts have any length, only the last.
  using Kept = std::map<std::pair<int64_t, int64_t>, Rotation>;
  Kept of_training_, of_evaluation_;
};

}  // namespace athanor::ops
