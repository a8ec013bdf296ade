#pragma once
// Hashes of a tensor's memory by blocks, to find out whether and where it has changed since.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "layout/buckets.h"
#include "ops/tensor.h"

namespace athanor::inline watch {

/// Returns what BlockHashes needs to hash memory of a device: an odd factor for each element of a block, int64, there.
/// Undefined for the host. The host does not wait.
Tensor hash_factors(at::Device device);

class BlockHashes {
 public:
  /// Hashes `values` [n], contiguous, of a type with 2, 4 or 8 bytes. Reads them once. On a device the host does not
  /// wait, and a flipped bit always changes the hash of its block; of other changes one in 2^64 does not.
  /// @param factors  hash_factors of the device that has the values.
  explicit BlockHashes(const Tensor& values, const Tensor& factors = {});

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
