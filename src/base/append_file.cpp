#include "base/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/fault.h"

namespace athanor {
namespace {

// Returns 0, or the error number.
int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return 0;
}

}  // namespace

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail_errno("cannot open", path_.string());
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::append(std::string_view record) {
  const off_t end = ::lseek(fd_, 0, SEEK_END);
  const int injected = fault_errno("append.write");
  const int error_number = injected ? injected : write_all(fd_, record);
  if (error_number == 0) return;
  // This is a best effort: if even the truncation fails, readers find a torn record and report it.
  [[maybe_unused]] const int cut = end >= 0 ? ::ftruncate(fd_, end) : 0;
  throw IoError("cannot append to " + path_.string() + ": " + std::strerror(error_number), error_number);
}

void AppendFile::sync() {
  if (::fdatasync(fd_) != 0 && errno != EINVAL) fail_errno("cannot sync", path_.string());
}

}  // namespace athanor
