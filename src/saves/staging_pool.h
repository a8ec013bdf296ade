#pragma once
// Memory of the host that holds a copy of a rank's part of a checkpoint while it is written.
//
// It is taken once, when a run starts, so that no later checkpoint can fail for lack of memory or make the run grow.

#include <vector>

#include "checkpoint/writer.h"
#include "ops/transfer.h"

namespace athanor::inline saves {

class StagingPool {
 public:
  /// Takes memory for these pieces and values (fp32; undefined: none), and writes to all of it.
  /// @param device  of the tensors that will be copied: for one that is not the CPU the memory is pinned.
  StagingPool(const std::vector<PieceView>& pieces, const std::vector<Tensor>& values, at::Device device);

  /// Returns the bytes of the pool.
  int64_t num_bytes() const { return static_cast<int64_t>(memory_.nbytes()); }

  struct Copy {
    std::vector<PieceView> pieces;
    std::vector<Tensor> values;
  };
  /// Copies the pieces, and `values` (fp32; an undefined one stays undefined), into the pool, and returns them with
  /// memory there. They have as many elements as those that it was made for. On a device the copies are only queued:
  /// until done() nothing may read them, and until follow() nothing may change what is copied.
  ///
  /// Fault point: "checkpoint.copy", before each block of 4 MiB.
  Copy copy(const std::vector<PieceView>& pieces, const std::vector<Tensor>& values);
  /// See ops::FetchAside.
  void follow() const { copies_.follow(); }
  bool done() const { return copies_.done(); }

 private:
  Tensor memory_;  // fp32
  ops::FetchAside copies_;
};

}  // namespace athanor::inline saves
