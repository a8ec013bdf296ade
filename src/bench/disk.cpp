#include "bench/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/random.h"

namespace athanor::bench {
namespace fs = std::filesystem;
namespace {

class OpenFile {
 public:
  OpenFile(const fs::path& path, int flags) : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail_errno("cannot open", path.string());
  }
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int get() const { return fd_; }
  // Returns what the system call returns, once no signal interrupts it.
  ssize_t retry(const auto& call) const {
    while (true) {
      const ssize_t done = call(fd_);
      if (done >= 0) return done;
      if (errno != EINTR) fail_errno("cannot read or write", path_.string());
    }
  }

 private:
  fs::path path_;
  int fd_;
};

}  // namespace

bool takes_direct_io(const fs::path& folder) {
  const fs::path file = folder / "direct";
  const auto block = take_pages(kDiskBlockBytes);
  std::fill_n(block.get(), kDiskBlockBytes, std::byte{});
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_DIRECT, 0666);
  const int why = errno;
  const bool takes = fd >= 0 && ::pwrite(fd, block.get(), kDiskBlockBytes, 0) == static_cast<ssize_t>(kDiskBlockBytes);
  if (fd >= 0) ::close(fd);
  ::unlink(file.c_str());
  errno = why;
  if (fd < 0 && why != EINVAL) fail_errno("cannot write", file.string());
  return takes;
}

void write_plain_file(const fs::path& file, int64_t bytes, bool direct) {
  const OpenFile out(file, O_WRONLY | O_CREAT | O_TRUNC | (direct ? O_DIRECT : 0));
  const auto block = take_pages(kDiskBlockBytes);  // random numbers, since a disk may know how to store zeros
  CounterRandom(0, "disk").fill_normal(reinterpret_cast<float*>(block.get()), 0, kDiskBlockBytes / sizeof(float), 1.0);
  for (int64_t at = 0; at < bytes;) at += out.retry([&](int fd) { return ::write(fd, block.get(), kDiskBlockBytes); });
  if (!direct && ::fsync(out.get()) != 0) fail_errno("cannot sync", file.string());
}

void read_plain_file(const fs::path& file, bool direct) {
  const OpenFile in(file, O_RDONLY | (direct ? O_DIRECT : 0));
  const auto block = take_pages(kDiskBlockBytes);
  while (in.retry([&](int fd) { return ::read(fd, block.get(), kDiskBlockBytes); }) > 0) {
  }
}

void drop_pages(const fs::path& path) {
  if (fs::is_directory(path)) {
    for (const auto& each : fs::recursive_directory_iterator(path))
      if (each.is_regular_file()) drop_pages(each.path());
    return;
  }
  const OpenFile file(path, O_RDONLY);
  if (::fdatasync(file.get()) != 0) fail_errno("cannot sync", path.string());
  if (const int error = ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED)) {
    errno = error;
    fail_errno("cannot drop the pages of", path.string());
  }
}

}  // namespace athanor::bench
