#pragma once
// A chunk as it travels: a header with a hash, which the reader of the source computes and every node compares, and the
// bytes. They are one message, which is forwarded as it came.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"

namespace athanor::staging {

struct ChunkHeader {
  enum Kind : uint32_t {
    kBytes,  ///< the bytes follow
    kZeros,  ///< all bytes are zero and none follow: a hole of a sparse file
    kStop,   ///< the first node cannot send more; its reason follows
  };
  uint32_t magic = kMagic;
  uint32_t kind = kBytes;
  uint64_t chunk = 0;
  uint64_t bytes = 0;   ///< that the chunk has, or the reason
  HashWords hash = {};  ///< covers the fields above and the bytes that follow

  static constexpr uint32_t kMagic = 0x7ee71e57;
};

/// The memory of one chunk, which is used again for others.
class ChunkBuffer {
 public:
  explicit ChunkBuffer(uint64_t most_bytes)
      : memory_(std::make_unique_for_overwrite<std::byte[]>(sizeof(ChunkHeader) + most_bytes)), most_(most_bytes) {}

  ChunkHeader& header() { return *reinterpret_cast<ChunkHeader*>(memory_.get()); }
  const ChunkHeader& header() const { return *reinterpret_cast<const ChunkHeader*>(memory_.get()); }
  std::byte* payload() { return memory_.get() + sizeof(ChunkHeader); }
  const std::byte* payload() const { return memory_.get() + sizeof(ChunkHeader); }
  void* message() { return memory_.get(); }
  int64_t room() const { return static_cast<int64_t>(sizeof(ChunkHeader) + most_); }
  int64_t message_bytes() const {
    return static_cast<int64_t>(sizeof(ChunkHeader) + (header().kind == ChunkHeader::kZeros ? 0 : header().bytes));
  }

  /// Completes the header of bytes that are in place. Zeros are not sent.
  void seal(uint64_t chunk, uint64_t bytes);
  /// Makes this the message that ends a transfer. A reason that is too long is cut.
  void seal_stop(std::string_view reason);
  std::string reason() const { return {reinterpret_cast<const char*>(payload()), header().bytes}; }
  /// Returns whether a message of this size arrived as its sender has sealed it.
  bool is_intact(int64_t message_bytes) const;
  /// Writes the bytes of zeros that were not sent.
  void expand_zeros();

  uint64_t position = 0;            ///< in the list of chunks that are sent
  std::exception_ptr failure = {};  ///< why it could not be filled

 private:
  HashWords compute_hash() const;
  std::unique_ptr<std::byte[]> memory_;
  uint64_t most_;
};

/// What happens to chunks next to the messages: reading them from the source, or writing them to a disk. It does not
/// wait; tests give it its own clock.
class ChunkWork {
 public:
  virtual ~ChunkWork() = default;
  virtual void start(ChunkBuffer& buffer) = 0;
  /// Returns one buffer whose work is complete, or null.
  virtual ChunkBuffer* take_done() = 0;
};

}  // namespace athanor::staging
