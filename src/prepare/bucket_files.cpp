#include "prepare/bucket_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/fault.h"
#include "base/file_moves.h"

namespace athanor::inline preparation {
namespace {

constexpr size_t kNumberBytes = sizeof(int64_t);  // the number of the row, before its bytes
constexpr size_t kReadBytes = size_t{1} << 20;

// A file that is open only briefly: there may be more buckets than a process may have open files.
class BucketFile {
 public:
  BucketFile(const std::filesystem::path& path, int flags)
      : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail_errno("cannot open", path.string());
  }
  ~BucketFile() { ::close(fd_); }
  BucketFile(const BucketFile&) = delete;
  BucketFile& operator=(const BucketFile&) = delete;

  void write_at(uint64_t offset, const std::byte* bytes, size_t length) const {
    errno = fault_errno("files.write");
    if (errno != 0) fail_errno("cannot write", path_.string());
    while (length > 0) {
      const ssize_t put = ::pwrite(fd_, bytes, length, static_cast<off_t>(offset));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail_errno("cannot write", path_.string());
      bytes += put;
      offset += static_cast<uint64_t>(put);
      length -= static_cast<size_t>(put);
    }
  }
  // Reads as many bytes as there are, up to `length`.
  size_t read(std::byte* bytes, size_t length) const {
    size_t filled = 0;
    while (filled < length) {
      const ssize_t got = ::read(fd_, bytes + filled, length - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail_errno("cannot read", path_.string());
      if (got == 0) break;
      filled += static_cast<size_t>(got);
    }
    return filled;
  }
  void sync() const {
    if (::fdatasync(fd_) != 0 && errno != EINVAL) fail_errno("cannot sync", path_.string());
  }

 private:
  const std::filesystem::path& path_;
  int fd_;
};

}  // namespace

BucketFiles::BucketFiles(std::filesystem::path folder, int64_t row_bytes, uint64_t buffer_bytes)
    : folder_(std::move(folder)), row_bytes_(static_cast<size_t>(row_bytes)), buffer_bytes_(buffer_bytes) {
  ATHANOR_ASSERT(buffer_bytes >= kNumberBytes + row_bytes_);
}

std::filesystem::path BucketFiles::file_of(int64_t bucket) const { return folder_ / fmt::format("{:06}", bucket); }

void BucketFiles::begin(int64_t first, int64_t count) {
  create_folders(folder_);
  first_ = first;
  buffers_.resize(static_cast<size_t>(count) * buffer_bytes_);
  filled_.assign(static_cast<size_t>(count), 0);
  written_.assign(static_cast<size_t>(count), 0);
}

void BucketFiles::append(int64_t bucket, int64_t row, const std::byte* bytes) {
  const auto index = static_cast<size_t>(bucket - first_);
  if (filled_[index] + kNumberBytes + row_bytes_ > buffer_bytes_) flush(index);
  std::byte* at = buffers_.data() + index * buffer_bytes_ + filled_[index];
  std::memcpy(at, &row, kNumberBytes);
  std::memcpy(at + kNumberBytes, bytes, row_bytes_);
  filled_[index] += kNumberBytes + row_bytes_;
}

void BucketFiles::flush(size_t index) {
  const auto path = file_of(first_ + static_cast<int64_t>(index));
  const BucketFile file(path, O_WRONLY | O_CREAT | (written_[index] == 0 ? O_TRUNC : 0));
  file.write_at(written_[index], buffers_.data() + index * buffer_bytes_, filled_[index]);
  written_[index] += filled_[index];
  filled_[index] = 0;
  fault_point("prepare.scatter");
}

void BucketFiles::finish() {
  for (size_t i = 0; i < filled_.size(); ++i) {
    flush(i);
    const auto path = file_of(first_ + static_cast<int64_t>(i));
    BucketFile(path, O_RDONLY).sync();
  }
  const auto folder = folder_;
  BucketFile(folder, O_RDONLY).sync();
  std::vector<std::byte>().swap(buffers_);
}

int64_t BucketFiles::read(int64_t bucket, const std::function<void(int64_t, const std::byte*)>& take) const {
  const auto path = file_of(bucket);
  const BucketFile file(path, O_RDONLY);
  const size_t record_bytes = kNumberBytes + row_bytes_;
  std::vector<std::byte> buffer(std::max<size_t>(1, kReadBytes / record_bytes) * record_bytes);
  int64_t num_rows = 0;
  for (;;) {
    const size_t filled = file.read(buffer.data(), buffer.size());
    for (size_t at = 0; at + record_bytes <= filled; at += record_bytes, ++num_rows) {
      int64_t row = 0;
      std::memcpy(&row, buffer.data() + at, kNumberBytes);
      take(row, buffer.data() + at + kNumberBytes);
    }
    if (filled < buffer.size()) return num_rows;
  }
}

void BucketFiles::remove(int64_t bucket) const {
  std::error_code ignored;
  std::filesystem::remove(file_of(bucket), ignored);
}

}  // namespace athanor::inline preparation
