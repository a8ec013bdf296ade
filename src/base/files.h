#pragma once
// Files that are either whole or absent: they are written under a temporary name and then renamed. Also reads and maps
// whole files.
//
// Every failure throws IoError with the path and the system's reason. A full disk can be distinguished
// (IoError::disk_full). Partially written files are removed.
//
// Fault points: "files.write" before each write to an AtomicFile, "folder.before_rename" in AtomicFolder::commit.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

namespace athanor {

class BlockWriter;

std::string read_file(const std::filesystem::path& path);

/// A file opened for writing as ".<name>.tmp" in the same folder as `path`; `commit` syncs and renames it, and replaces
/// a file that is there. Without `commit` the destructor removes it, so a failure leaves nothing behind. Only one
/// process at a time may write a path.
class AtomicFile {
 public:
  /// How the bytes come. Those of a long file come in their order, without write_at, and pass by the page cache
  /// (base/block_writer.h).
  enum class Bytes { kFew, kLong };
  explicit AtomicFile(std::filesystem::path path, Bytes bytes = Bytes::kFew);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t num_bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Overwrites bytes at `offset` (a header known only at the end); the end stays where it was.
  void write_at(uint64_t offset, const void* data, size_t num_bytes);
  /// Bytes written so far, which is the offset of the next write.
  uint64_t size() const { return size_; }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  uint64_t size_ = 0;
  std::unique_ptr<BlockWriter> blocks_;  // for a long file
};

/// Replaces `path` by `text` in one step, synced to disk.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// Syncs a file or a folder that is on disk; of a folder, its names. File systems that cannot sync folders are trusted.
void sync_path(const std::filesystem::path& path);

/// A folder written as ".<name>.tmp" next to its final path; `commit` syncs it and the folders in it and renames it,
/// which fails if there is anything except an empty folder at that path. Without `commit` the destructor removes it.
/// The files in it must be synced already (AtomicFile does that): other processes may have written thousands of them.
class AtomicFolder {
 public:
  /// Removes what a killed process has left under the temporary name, and makes the folder.
  /// @throws IoError if it cannot be made.
  explicit AtomicFolder(std::filesystem::path path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& staging() const { return staging_; }
  void commit();

 private:
  std::filesystem::path path_, staging_;
};

/// A whole file mapped read-only. Pages are read when touched. An empty file has null as its data.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  /// Asks the disk for bytes that will be read soon, and does not wait for them.
  void will_read(size_t begin, size_t end) const;
  /// Releases the memory of these bytes and of a few around them, which will not be read soon; the file keeps them. A
  /// reader of a file larger than memory that releases what it has read takes only the memory that it still holds.
  void release(const void* begin, size_t num_bytes) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Returns the path itself, or the nearest folder above it that exists.
std::filesystem::path nearest_existing(const std::filesystem::path& path);

/// Returns the bytes that may still be written to the file system of `path` (or of its nearest existing parent);
/// UINT64_MAX if the system does not report them.
uint64_t free_disk_bytes(const std::filesystem::path& path);

/// Returns whether the file system of `path` (or of its nearest existing parent) is memory: /dev/shm, for example.
bool is_in_memory(const std::filesystem::path& path);

/// Returns the error of the file system as the error of this project: "cannot use PATH: reason".
IoError io_error_of(const std::filesystem::filesystem_error& error);

/// Returns what `look` returns. @throws IoError where the standard library would throw its own error of files: a folder
/// on the way may not be entered, or a name is too long.
template <class Look>
auto with_io_errors(Look look) -> decltype(look()) {
  try {
    return look();
  } catch (const std::filesystem::filesystem_error& error) {
    throw io_error_of(error);
  }
}

}  // namespace athanor
