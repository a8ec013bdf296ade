#pragma once
// Reads the bytes of a file and decompresses them.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "documents/document_options.h"
#include "documents/inputs.h"

namespace athanor::inline documents {

/// Only one thread at a time may read.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills up to `capacity` bytes, at least 1, and returns their number; 0 means the end.
  /// @throws DocumentError naming the file and its (compressed) byte, after the bytes before it have been returned:
  ///         compression that is damaged, cut off or not supported, or content of another kind (other_content.h).
  ///         IoError if the system cannot read.
  virtual size_t read(char* out, size_t capacity) = 0;
  /// Bytes of the file itself (compressed) consumed so far, for progress.
  virtual uint64_t file_position() const = 0;
};

/// Opens a file; gzip may have any number of members and zstd any number of frames.
/// @param max_zstd_window  frames of a larger window are not supported. @throws IoError.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& file, const InputFormat& format,
                                       uint64_t max_zstd_window = kMaxZstdWindow);

}  // namespace athanor::inline documents
