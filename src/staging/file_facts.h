#pragma once
// Open files and folders, what tells whether a file is the same, and reads and writes of whole ranges.

#include <sys/stat.h>

#include <cstdint>

namespace athanor::staging {

inline int64_t mtime_ns_of(const struct stat& found) {
  return static_cast<int64_t>(found.st_mtim.tv_sec) * 1'000'000'000 + found.st_mtim.tv_nsec;
}
struct timespec timespec_of(int64_t ns);

/// A descriptor that is closed with its last user.
class OpenedFile {
 public:
  explicit OpenedFile(int fd) : fd_(fd) {}
  ~OpenedFile();
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// Reads all bytes of a range. @return false if there are not as many (errno is 0), or by an error (errno tells it).
bool read_fully(int fd, void* out, uint64_t num_bytes, uint64_t offset);
/// Writes all bytes of a range. @return false by an error, which errno tells.
bool write_fully(int fd, const void* data, uint64_t num_bytes, uint64_t offset);

}  // namespace athanor::staging
