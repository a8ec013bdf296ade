#pragma once
// Hashes of a tensor's memory by blocks, to find out whether and where it has changed since.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "layout/buckets.h"
#include "ops/memory_hasher.h"

namespace athanor::inline watch {

class BlockHashes {
 public:
  /// @param hasher  of the device that has the values.
  BlockHashes(const Tensor& values, const ops::MemoryHasher& hasher);

  /// Brings the hashes to the host, with one wait for a device. The functions below need this first.
  static void fetch(std::span<BlockHashes* const> all);

  /// Returns the elements of the first block whose hash is another in `now`, which is of the same size; nothing if all
  /// are equal.
  std::optional<FlatRange> first_difference(const BlockHashes& now) const;
  /// Returns one number for all blocks.
  int64_t combined() const;

 private:
  std::span<const int64_t> on_host() const;

  int64_t size_, block_;
  Tensor hashes_;  // [blocks] int64
};

}  // namespace athanor::inline watch
