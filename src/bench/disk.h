#pragma once
// What a disk can do with the bytes of a checkpoint: plain writes and reads past the page cache, as `dd oflag=direct`
// and `dd iflag=direct` make them.

#include <cstdint>
#include <filesystem>

#include "base/block_writer.h"

namespace athanor::bench {

/// Bytes of one write or read: those of the writer of checkpoints.
inline constexpr size_t kDiskBlockBytes = BlockWriter::kBlockBytes;

/// Returns whether files in this folder can be written past the page cache (O_DIRECT).
bool takes_direct_io(const std::filesystem::path& folder);

/// Writes a file of at least `bytes` bytes, whole blocks, from memory that holds random numbers. With `direct` each
/// block passes by the page cache; otherwise the file is synced at the end. @throws IoError.
void write_plain_file(const std::filesystem::path& file, int64_t bytes, bool direct);
/// Reads that file, block by block. @throws IoError.
void read_plain_file(const std::filesystem::path& file, bool direct);

/// Drops the pages of a file, or of all files in a folder, from the page cache, so that the next reader waits for the
/// disk. @throws IoError.
void drop_pages(const std::filesystem::path& path);

}  // namespace athanor::bench
