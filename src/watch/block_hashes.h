#pragma once
// Hashes of a tensor's memory by blocks, to find out whether and where it has changed since.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "layout/buckets.h"
#include "ops/tensor.h"

namespace athanor::inline watch {

/// How memory is hashed where it is. Values are [n], contiguous, of a type with 2, 4 or 8 bytes, and are read once. On
/// a device the host does not wait, and a flipped bit always changes the hash of its block; of other changes one in
/// 2^64 does not.
class MemoryHasher {
 public:
  /// Makes the one for memory of `device`; for an accelerator it has a table there, of 32 MiB.
  static std::shared_ptr<const MemoryHasher> of(at::Device device);
  virtual ~MemoryHasher() = default;

  virtual int64_t block() const = 0;  ///< elements
  /// Returns a hash for each block, int64 [blocks], there.
  virtual Tensor hash(const Tensor& values) const = 0;
  /// Returns one number that changes with the bits, int64 without dims, there; cheap for many small tensors.
  virtual Tensor fingerprint(const Tensor& values) const = 0;
};

class BlockHashes {
 public:
  /// @param hasher  of the device that has the values.
  BlockHashes(const Tensor& values, const MemoryHasher& hasher);

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
