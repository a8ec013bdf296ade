#include "base/file_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace athanor {

FileReader::FileReader(const std::filesystem::path& path)
    // Without O_NONBLOCK, opening a pipe would wait for somebody who writes into it.
    : path_(path.string()), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) fail_errno("cannot open", path_);
  struct stat status {};
  int failed = ::fstat(fd_, &status) != 0 ? errno : 0;
  if (failed == 0 && S_ISDIR(status.st_mode)) failed = EISDIR;
  const bool is_pipe = failed == 0 && S_ISFIFO(status.st_mode);
  if (is_pipe) {
    ::close(std::exchange(fd_, -1));
    throw IoError("cannot read " + path_ + ": it is a pipe, and a file is needed", ENOENT);
  }
  if (failed != 0) {
    ::close(std::exchange(fd_, -1));
    errno = failed;
    fail_errno("cannot read", path_);
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

size_t FileReader::read_up_to(uint64_t offset, void* out, size_t num_bytes) const {
  size_t done = 0;
  while (done < num_bytes) {
    const ssize_t got =
        ::pread(fd_, static_cast<char*>(out) + done, num_bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_reading(path_, offset + done, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void FileReader::read_at(uint64_t offset, void* out, size_t num_bytes) const {
  const size_t got = read_up_to(offset, out, num_bytes);
  if (got == num_bytes) return;
  struct stat now {};  // a row far behind the end of a truncated file does not show where that end is
  const uint64_t end =
      ::fstat(fd_, &now) == 0 ? std::min(static_cast<uint64_t>(now.st_size), offset + got) : offset + got;
  throw IoError(fmt::format("cannot read {} bytes of {} at byte {}: it ends at byte {} now and had {} when it was "
                            "opened; get it again from a copy",
                            num_bytes, path_, offset, end, size_),
                EIO);
}

void fail_reading(const std::string& path, uint64_t offset, int error_number) {
  throw IoError(fmt::format("cannot read {} at byte {}: {}", path, offset, std::strerror(error_number)), error_number);
}

}  // namespace athanor
