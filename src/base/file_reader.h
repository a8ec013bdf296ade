#pragma once
// Reads bytes at any offset of a file, by pread. A failed read throws an exception that names file and byte; with a
// mapped file, truncation or a failing disk would end the process by SIGBUS instead.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace athanor {

/// Callback of long work that others wait for, called from any thread; it receives the number of bytes or pieces that
/// were done since the last call.
using Worked = std::function<void(int64_t amount)>;

/// Any number of threads may read from one object at the same time.
class FileReader {
 public:
  /// @throws IoError if it cannot be opened or is a folder.
  explicit FileReader(const std::filesystem::path& path);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;

  const std::string& path() const { return path_; }
  /// Size in bytes of the file when it was opened.
  uint64_t size() const { return size_; }

  /// Reads exactly `num_bytes` at `offset`.
  /// @throws IoError naming path and offset if the read fails or the file ends too early.
  void read_at(uint64_t offset, void* out, size_t num_bytes) const;

  /// Reads up to `num_bytes` at `offset`, as many as the file has. @return the number of bytes read; 0 at its end.
  /// @throws IoError naming path and offset if the read fails.
  size_t read_up_to(uint64_t offset, void* out, size_t num_bytes) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

/// Throws the IoError that read_at throws; for code that simulates a failing disk.
[[noreturn]] void fail_reading(const std::string& path, uint64_t offset, int error_number);

}  // namespace athanor
