#pragma once
// Writes a long file from its beginning to its end as fast as the disk takes it.
//
// Blocks pass by the page cache (O_DIRECT) where the file system allows it: otherwise each byte is copied into the
// cache, which holds the memory until the disk has it, and a sync at the end waits for all of it. A thread writes one
// block while the caller fills the next, so that hashing and copying take no time of the disk. Where a file system
// refuses O_DIRECT, the kernel is told after each block to write it back, and the sync finds little left.

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>

namespace athanor {

/// What O_DIRECT asks of memory, lengths and positions is at most a page on all disks that are in use.
inline constexpr size_t kPageBytes = 4096;

struct FreePages {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using PageAligned = std::unique_ptr<std::byte, FreePages>;

/// Returns memory that begins at a page, as O_DIRECT wants it. @param num_bytes  a multiple of kPageBytes. @throws
/// std::bad_alloc.
inline PageAligned take_pages(size_t num_bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPageBytes, num_bytes));
  if (!memory) throw std::bad_alloc();
  return PageAligned(memory);
}

class BlockWriter {
 public:
  /// Bytes that are written at a time, each from one of two buffers.
  static constexpr size_t kBlockBytes = size_t{4} << 20;

  /// @param fd     open for writing, and the caller's; it must outlive this object.
  /// @param path   for messages.
  /// @param begin  where the first byte goes.
  BlockWriter(int fd, std::string path, uint64_t begin = 0);
  /// Waits for the block that is being written. What was not written by finish() may be missing.
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  /// Adds bytes. @throws IoError, if these or earlier bytes cannot be written.
  void write(const void* data, size_t num_bytes);
  /// Returns when every byte is with the file system; it is not synced. Nothing may follow. @throws IoError.
  void finish();

 private:
  struct Block {
    PageAligned memory = {};
    size_t filled = 0;
  };

  void hand_over();
  void wait_until_idle(std::unique_lock<std::mutex>& lock);
  void work();
  int put(const Block& block, uint64_t at);
  void stop_direct();

  const int fd_;
  const std::string path_;
  bool direct_;
  Block filling_;
  uint64_t at_;  // where the first byte of filling_ goes

  std::thread thread_;  // begins with the first full block: many files have none
  std::mutex mutex_;    // guards what follows
  std::condition_variable changed_;
  Block writing_;
  uint64_t writing_at_ = 0;
  bool busy_ = false, leave_ = false;  // busy_: the thread has writing_
  int failure_ = 0;                    // errno of the first write that failed
};

}  // namespace athanor
