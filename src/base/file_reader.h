#pragma once
// Bytes of a file at any place, by pread: what cannot be read is an exception that names file and byte. A mapped file
// that is cut off, or whose disk fails, ends the process by SIGBUS instead.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace athanor {

/// Told the bytes that were done since the last call, of long work that others wait for.
using Worked = std::function<void(int64_t num_bytes)>;

/// Any number of threads may read one at a time.
class FileReader {
 public:
  /// @throws IoError if it cannot be opened or is a folder.
  explicit FileReader(const std::filesystem::path& path);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;

  const std::string& path() const { return path_; }
  /// When it was opened.
  uint64_t size() const { return size_; }

  /// All of the `num_bytes` at `offset`.
  /// @throws IoError naming path and offset if the system fails, or the file ends before.
  void read_at(uint64_t offset, void* out, size_t num_bytes) const;

  /// As many of them as there are, up to `num_bytes`. @return how many.
  size_t read_up_to(uint64_t offset, void* out, size_t num_bytes) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

/// An IoError as read_at throws it: for what stands in for a failing disk.
[[noreturn]] void fail_reading(const std::string& path, uint64_t offset, int error_number);

}  // namespace athanor
