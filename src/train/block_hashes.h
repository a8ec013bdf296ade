#pragma once
// Hashes of a tensor's memory by blocks, to find out whether and where it has changed since.

#include <cstdint>
#include <optional>
#include <vector>

#include "layout/buckets.h"
#include "ops/tensor.h"

namespace athanor {

class BlockHashes {
 public:
  /// Hashes `values` [n], contiguous, of a type with 2, 4 or 8 bytes. Reads them once. On a device the host does not
  /// wait, and a flipped bit always changes the hash of its block; of other changes one in 2^64 does not.
  explicit BlockHashes(const Tensor& values);

  /// Returns the elements of the first block whose hash is another in `now`, which is of the same size; nothing if all
  /// are equal. Waits for a device.
  std::optional<FlatRange> first_difference(const BlockHashes& now) const;
  /// Returns one number for all blocks. Waits for a device.
  int64_t combined() const;

 private:
  std::vector<int64_t> on_host() const;

  int64_t size_, block_;
  Tensor hashes_;  // [blocks] int64
};

}  // namespace athanor
