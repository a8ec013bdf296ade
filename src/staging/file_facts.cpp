#include "staging/file_facts.h"

#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace athanor::staging {

OpenedFile::~OpenedFile() {
  if (fd_ >= 0) ::close(fd_);
}

struct timespec timespec_of(int64_t ns) {
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t part = (ns % kSecond + kSecond) % kSecond;  // times before 1970 are negative
  return {static_cast<time_t>((ns - part) / kSecond), static_cast<long>(part)};
}

bool read_fully(int fd, void* out, uint64_t num_bytes, uint64_t offset) {
  for (uint64_t done = 0; done < num_bytes;) {
    const ssize_t got =
        ::pread(fd, static_cast<char*>(out) + done, num_bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;
    if (got <= 0) return false;
    done += static_cast<uint64_t>(got);
  }
  return true;
}

bool write_fully(int fd, const void* data, uint64_t num_bytes, uint64_t offset) {
  for (uint64_t done = 0; done < num_bytes;) {
    const ssize_t put =
        ::pwrite(fd, static_cast<const char*>(data) + done, num_bytes - done, static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    done += static_cast<uint64_t>(put);
  }
  return true;
}

}  // namespace athanor::staging
