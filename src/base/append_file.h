#pragma once
// A file that grows by whole records: lines of JSON, framed events. A record that cannot be written whole is left out,
// so that a disk that is full for a while loses some records but never damages later ones.

#include <filesystem>
#include <string_view>

namespace athanor {

/// Only one thread of one process may append to a file.
class AppendFile {
 public:
  /// Opens or creates `path`. @throws IoError
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Writes the bytes of `record`, with no newline added, and hands them to the kernel, so that they outlive this
  /// process. A partially written record is removed again.
  /// @throws IoError if it could not be written whole.
  void append(std::string_view record);
  /// Waits until all records are on the disk. @throws IoError
  void sync();

 private:
  std::filesystem::path path_;
  int fd_;
};

}  // namespace athanor
