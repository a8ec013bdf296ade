#pragma once
// A file that grows by whole records: a line of JSON, a framed event. What cannot be written whole is not there at all,
// so that a disk that was full for a while costs records, never the ones after them.

#include <filesystem>
#include <string_view>

namespace athanor {

class AppendFile {
 public:
  /// Opens or creates `path`. @throws IoError
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Hands the record to the kernel, so that it outlives this process. A record cut short is taken back.
  /// @throws IoError if it could not be written whole.
  void append(std::string_view record);
  /// Waits until the disk has it. @throws IoError
  void sync();

 private:
  std::filesystem::path path_;
  int fd_;
};

}  // namespace athanor
