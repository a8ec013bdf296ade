#pragma once
// Reads the bytes of a file and decompresses them.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "documents/inputs.h"

namespace athanor {

/// Thrown for compression that is damaged or cut off. The message names the file and its (compressed) byte.
class DamagedBytes : public DataError {
 public:
  using DataError::DataError;
};

/// Only one thread at a time may read.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills up to `capacity` bytes, at least 1, and returns their number; 0 means the end.
  /// @throws DamagedBytes, after the bytes before the damage have been returned; IoError if the system cannot read.
  virtual size_t read(char* out, size_t capacity) = 0;
  /// Bytes of the file itself (compressed) consumed so far, for progress.
  virtual uint64_t file_position() const = 0;
};

/// Opens a file; gzip may have any number of members and zstd any number of frames. @throws IoError.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file, Compression compression);

}  // namespace athanor
