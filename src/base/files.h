#pragma once
// Files that are either whole or absent: read, map, and write beside then rename.
//
// Every failure throws IoError with the path and the system's reason; a full disk is told apart
// (IoError::disk_full), and what was half-written is removed.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace athanor {

std::string read_file(const std::filesystem::path& path);

/// A file opened for writing under a temporary name beside `path`; `commit` syncs and renames it.
/// Without `commit` the destructor removes it, so a failure leaves nothing behind.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t num_bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Overwrites bytes at `offset` (a header known only at the end); the end stays where it was.
  void write_at(uint64_t offset, const void* data, size_t num_bytes);
  uint64_t size() const { return size_; }
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

/// Replaces `path` by `text` in one step, synced to disk.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

/// A folder written beside its final name, as ".<name>.tmp"; `commit` syncs every file and renames the folder.
/// Without `commit` the destructor removes it.
class AtomicFolder {
 public:
  /// @throws IoError if it cannot be made. A leftover of a killed process under the same name is removed first.
  explicit AtomicFolder(std::filesystem::path path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& staging() const { return staging_; }
  void commit();

 private:
  std::filesystem::path path_, staging_;
};

/// A whole file mapped read-only. Pages are read when touched.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  /// These bytes and a few around them will not be read soon: they leave this process, and stay in the file. Reading a
  /// file larger than memory, released behind the reader, takes no more of it than the reader holds.
  void release(const void* begin, size_t num_bytes) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Bytes that may still be written to the file system that holds `path` (or its nearest existing parent).
uint64_t free_disk_bytes(const std::filesystem::path& path);

}  // namespace athanor
