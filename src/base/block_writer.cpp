#include "base/block_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace athanor {
namespace {

bool set_direct(int fd, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace

BlockWriter::BlockWriter(int fd, std::string path, uint64_t begin)
    : fd_(fd), path_(std::move(path)), direct_(set_direct(fd, true)), at_(begin) {
  filling_.memory = take_pages(kBlockBytes);
}

BlockWriter::~BlockWriter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    leave_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void BlockWriter::write(const void* data, size_t num_bytes) {
  const auto* bytes = static_cast<const std::byte*>(data);
  while (num_bytes > 0) {
    const size_t count = std::min(num_bytes, kBlockBytes - filling_.filled);
    std::memcpy(filling_.memory.get() + filling_.filled, bytes, count);
    filling_.filled += count;
    bytes += count;
    num_bytes -= count;
    if (filling_.filled == kBlockBytes) hand_over();
  }
}

void BlockWriter::wait_until_idle(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return !busy_; });
  if (failure_ == 0) return;
  errno = failure_;
  fail_errno("cannot write", path_);
}

// Gives the block that was filled to the thread, once it has written the one before.
void BlockWriter::hand_over() {
  std::unique_lock lock(mutex_);
  wait_until_idle(lock);
  if (!writing_.memory) writing_.memory = take_pages(kBlockBytes);
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  std::swap(filling_, writing_);
  writing_at_ = std::exchange(at_, at_ + writing_.filled);
  filling_.filled = 0;
  busy_ = true;
  changed_.notify_all();
}

void BlockWriter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return busy_ || leave_; });
    if (!busy_) return;
    lock.unlock();
    const int failure = put(writing_, writing_at_);
    lock.lock();
    failure_ = failure;
    busy_ = false;
    changed_.notify_all();
  }
}

// Writes a block, and returns errno or 0. Called by the thread, or by the caller while the thread is idle.
int BlockWriter::put(const Block& block, uint64_t at) {
  for (size_t done = 0; done < block.filled;) {
    // The last bytes of a file are no whole page; after them comes nothing.
    size_t count = block.filled - done;
    if (direct_) count = count / kPageBytes * kPageBytes;
    if (count == 0) {
      stop_direct();
      continue;
    }
    const ssize_t put = ::pwrite(fd_, block.memory.get() + done, count, static_cast<off_t>(at + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL && direct_) {  // some file systems refuse only now
      stop_direct();
      continue;
    }
    if (put < 0) return errno;
    if (put == 0) return ENOSPC;
    done += static_cast<size_t>(put);
  }
  if (!direct_) ::sync_file_range(fd_, static_cast<off_t>(at), static_cast<off_t>(block.filled), SYNC_FILE_RANGE_WRITE);
  return 0;
}

void BlockWriter::stop_direct() {
  set_direct(fd_, false);
  direct_ = false;
}

void BlockWriter::finish() {
  std::unique_lock lock(mutex_);
  wait_until_idle(lock);
  failure_ = put(filling_, at_);
  at_ += std::exchange(filling_.filled, 0);
  wait_until_idle(lock);
}

}  // namespace athanor
