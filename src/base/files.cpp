#include "base/files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/block_writer.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/file_moves.h"

namespace athanor {
namespace fs = std::filesystem;

namespace {

class FileDescriptor {
 public:
  FileDescriptor(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail_errno("cannot open", path.string());
  }
  ~FileDescriptor() { ::close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::string read_file(const fs::path& path) {
  FileDescriptor fd(path, O_RDONLY);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail_errno("cannot stat", path.string());
  if (S_ISDIR(status.st_mode)) throw IoError("cannot read " + path.string() + ": it is a folder", EISDIR);
  std::string text;
  text.resize(static_cast<size_t>(status.st_size));
  size_t filled = 0;
  for (;;) {  // also right for files whose size is not known beforehand, such as pipes
    if (filled == text.size()) text.resize(text.size() + 4096);
    const ssize_t got = ::read(fd.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("cannot read", path.string());
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  text.resize(filled);
  return text;
}

void sync_path(const fs::path& path) {
  FileDescriptor fd(path, O_RDONLY);
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail_errno("cannot sync", path.string());
}

AtomicFile::AtomicFile(fs::path path, Bytes bytes) : path_(std::move(path)) {
  temporary_ = temporary_name(path_);
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_errno("cannot create", temporary_.string());
  if (bytes == Bytes::kLong) blocks_ = std::make_unique<BlockWriter>(fd_, path_.string());
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  blocks_.reset();
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t num_bytes) {
  if (const int injected = fault_errno("files.write")) {
    errno = injected;
    fail_errno("cannot write", path_.string());
  }
  if (blocks_) {
    blocks_->write(data, num_bytes);
    size_ += num_bytes;
    return;
  }
  const auto* bytes = static_cast<const char*>(data);
  while (num_bytes > 0) {
    const ssize_t put = ::pwrite(fd_, bytes, num_bytes, static_cast<off_t>(size_));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno("cannot write", path_.string());
    bytes += put;
    num_bytes -= static_cast<size_t>(put);
    size_ += static_cast<uint64_t>(put);
  }
}

void AtomicFile::write_at(uint64_t offset, const void* data, size_t num_bytes) {
  ATHANOR_ASSERT(!blocks_);
  const uint64_t end = std::exchange(size_, offset);
  write(data, num_bytes);
  size_ = end;
}

void AtomicFile::commit() {
  if (blocks_) blocks_->finish();
  if (::fsync(fd_) != 0) fail_errno("cannot sync", path_.string());
  if (::close(std::exchange(fd_, -1)) != 0) fail_errno("cannot close", path_.string());
  try {
    rename_synced(temporary_, path_);
  } catch (const IoError&) {
    ::unlink(temporary_.c_str());
    throw;
  }
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AtomicFolder::AtomicFolder(fs::path path) : path_(std::move(path)) {
  if (path_.filename().empty()) path_ = path_.parent_path();  // "data/" names the same folder as "data"
  staging_ = temporary_name(path_);
  try_remove_tree(staging_);
  create_folders(staging_);
}

AtomicFolder::~AtomicFolder() {
  if (!staging_.empty()) try_remove_tree(staging_);
}

void AtomicFolder::commit() {
  std::error_code error;
  for (fs::recursive_directory_iterator at(staging_, error), end; !error && at != end; at.increment(error))
    if (at->is_directory(error)) sync_path(at->path());
  if (error) throw IoError("cannot list folder " + staging_.string() + ": " + error.message(), error.value());
  sync_path(staging_);
  fault_point("folder.before_rename");
  rename_path(staging_, path_);
  staging_.clear();
  sync_path(parent_folder(path_));
}

MappedFile::MappedFile(const fs::path& path) {
  FileDescriptor fd(path, O_RDONLY);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail_errno("cannot stat", path.string());
  if (S_ISDIR(status.st_mode)) throw IoError("cannot map " + path.string() + ": it is a folder", EISDIR);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) fail_errno("cannot map", path.string());
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::will_read(size_t begin, size_t end) const {
  constexpr size_t kPage = 4096;
  const size_t first = begin / kPage * kPage, last = std::min(end, size_);
  // this is advice: without it the pages are read when they are touched
  if (first < last) ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_WILLNEED);
}

void MappedFile::release(const void* begin, size_t num_bytes) const {
  if (num_bytes == 0) return;
  // The kernel maps up to 64 KiB around a page that is touched; these pages are released too.
  constexpr size_t kAround = 64 << 10;
  const auto offset = static_cast<size_t>(static_cast<const std::byte*>(begin) - data_);
  const size_t first = offset / kAround * kAround;
  const size_t end = std::min((offset + num_bytes + kAround - 1) / kAround * kAround, size_);
  // this is advice: a failure costs only memory
  ::madvise(const_cast<std::byte*>(data_) + first, end - first, MADV_DONTNEED);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

fs::path nearest_existing(const fs::path& path) {
  fs::path at = fs::absolute(path);
  while (!fs::exists(at) && at.has_parent_path() && at != at.root_path()) at = at.parent_path();
  return at;
}

bool is_in_memory(const fs::path& path) {
  struct statfs found {};
  if (::statfs(nearest_existing(path).c_str(), &found) != 0) return false;
  return found.f_type == TMPFS_MAGIC || found.f_type == RAMFS_MAGIC;
}

uint64_t free_disk_bytes(const fs::path& path) {
  std::error_code error;
  const auto space = fs::space(nearest_existing(path), error);
  return error ? UINT64_MAX : space.available;
}

IoError io_error_of(const fs::filesystem_error& error) {
  return IoError("cannot use " + error.path1().string() + ": " + error.code().message(), error.code().value());
}

}  // namespace athanor
