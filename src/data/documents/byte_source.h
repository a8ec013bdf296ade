#pragma once
// The bytes of a file, decompressed while they are read.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "data/documents/inputs.h"

namespace athanor {

/// Compression that is damaged or cut off. The message names the file and its (compressed) byte.
class DamagedBytes : public DataError {
 public:
  using DataError::DataError;
};

/// Pulled by one thread at a time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills up to `capacity` bytes; 0 means the end.
  /// @throws DamagedBytes; bytes before the damage have been given out by then. IoError if the system cannot read.
  virtual size_t read(char* out, size_t capacity) = 0;
  /// Bytes of the file itself consumed so far, for progress.
  virtual uint64_t file_position() const = 0;
};

/// Reads gzip with any number of members and zstd with any number of frames.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file, Compression compression);

}  // namespace athanor
