#pragma once
// Hashes of memory where it is, to find out whether it has changed since.

#include <cstdint>
#include <memory>

#include "ops/tensor.h"

namespace athanor::ops {

/// How memory is hashed. Values are [n], contiguous, of a type with 2, 4 or 8 bytes, and are read once. On a device the
/// host does not wait, and a flipped bit always changes the hash of its block; of other changes one in 2^64 does not.
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

}  // namespace athanor::ops
