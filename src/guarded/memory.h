#pragma once
// The memory of a device that the host plays in tests: pages that are mapped twice. Tensors have addresses of the
// closed mapping, so that code of the host that touches them is a fault with a stack; work that runs "on the device"
// uses the open mapping.
//
// Blocks are reused as libtorch's allocators of devices do it: a freed block is poisoned in the order of its own
// stream, and handed at once to the next allocation of that stream, even if another stream still reads it, unless
// note_use was called.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "guarded/queues.h"

namespace athanor::guarded {

// A bf16 or fp32 of these bytes is about −2.6·10³⁶, and an index is far out of range.
constexpr unsigned char kPoison = 0xFB;

class Memory {
 public:
  /// @param capacity  most bytes that can be allocated at once; pages are taken as they are used.
  explicit Memory(Queues& queues, size_t capacity = size_t{16} << 30);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Returns the closed address of a block, which has old or poisoned content. Null if the capacity is used up.
  void* allocate(size_t num_bytes, Queues::StreamId stream);
  void free(void* closed);
  /// States that another stream uses the block: once freed, it is not reused before the work that the stream has then
  /// is done.
  void note_use(void* closed, Queues::StreamId stream);

  /// Returns the open address of a closed one; an address elsewhere is returned as it is.
  template <class T>
  T* open(T* closed) const {
    auto* at = reinterpret_cast<const std::byte*>(closed);
    return contains(closed)
               ? reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(open_) + static_cast<size_t>(at - closed_))
               : closed;
  }
  bool contains(const void* address) const {
    auto* at = static_cast<const std::byte*>(address);
    return at >= closed_ && at < closed_ + capacity_;
  }

  /// From begin_pool on, memory for new allocations of the stream is taken from a pool, and used for nothing else until
  /// release_pool. Returns the pool.
  int64_t begin_pool(Queues::StreamId stream);
  void end_pool();
  void release_pool(int64_t pool);

  /// Sets the largest sum of bytes that can be allocated; a later allocation above it fails.
  void set_limit(size_t num_bytes);
  /// Lets the `index`-th allocation from now on (from 0) fail, and no other; −1: none. Returns how many there were
  /// since the last call.
  int64_t fail_at(int64_t index);
  size_t allocated() const;    ///< bytes that are in use
  size_t peak() const;         ///< the most that were in use since the beginning or reset_peak
  size_t free_pooled() const;  ///< bytes that only pools can use again
  size_t taken() const;        ///< bytes in use, and those that were and can be used again
  size_t free_bytes() const;   ///< bytes that can still be allocated outside of pools
  /// The same as allocated and peak, in the sizes that were asked for, in multiples of 512 bytes, as libtorch's
  /// allocator for CUDA counts them. Blocks are larger, by up to a quarter.
  size_t asked() const;
  size_t peak_asked() const;
  void reset_peak();

 private:
  struct Block {
    size_t num_bytes = 0, asked = 0;
    Queues::StreamId stream = 0;
    int64_t pool = 0;  // 0: not of a pool
    std::set<Queues::StreamId> users;
  };
  struct Waiting {
    void* closed;
    Block block;
    std::vector<Queues::Event> uses;
  };

  void give_back(void* closed, const Block& block);
  void collect();
  size_t free_now() const { return limit_ - std::min(limit_, in_use_ + free_pooled_); }

  Queues& queues_;
  const size_t capacity_;
  std::byte *closed_ = nullptr, *open_ = nullptr;
  mutable std::mutex mutex_;  // guards all members below
  size_t end_ = 0, in_use_ = 0, peak_ = 0, asked_ = 0, peak_asked_ = 0, free_pooled_ = 0, limit_;
  int64_t num_allocations_ = 0, failing_ = -1;
  std::map<void*, Block> used_;
  struct Kind {
    int64_t pool;
    Queues::StreamId stream;
    size_t num_bytes;
    auto operator<=>(const Kind&) const = default;
  };
  std::map<Kind, std::vector<void*>> free_;
  int64_t last_pool_ = 0, pool_ = 0;  // the pool that is filled; 0: none
  Queues::StreamId pool_stream_ = 0;
  std::vector<Waiting> waiting_;
};

}  // namespace athanor::guarded
