#pragma once
// A heap for a few hundred large blocks: best fit in one range of addresses, with blocks split and joined again.
//
// The range is reserved once and used from the bottom, so that any two free neighbours can be joined: the memory held
// is then little more than the peak in use. Memory is kept when blocks are freed, since a page that returns to the
// system costs a page fault and a clearing when it is needed again, step after step.

#include <cstddef>
#include <map>
#include <set>

namespace athanor::ops {

/// Not thread-safe: the owner locks.
class BlockHeap {
 public:
  static constexpr size_t kGranule_bytes = 512;        ///< sizes are multiples of it
  static constexpr size_t kLeastRest_bytes = 8 << 10;  ///< a rest smaller than this stays with its block
  static constexpr size_t kGrowth_bytes = 2 << 20;     ///< the range grows by whole huge pages

  /// Reserves addresses, no memory. If the system refuses the range, `allocate` of this heap returns null.
  explicit BlockHeap(size_t reserved_bytes);
  ~BlockHeap();
  BlockHeap(const BlockHeap&) = delete;
  BlockHeap& operator=(const BlockHeap&) = delete;

  /// Returns a block of at least `bytes` (> 0), aligned to kGranule_bytes; null if the range is used up or the system
  /// refuses memory.
  void* allocate(size_t bytes);
  /// Frees a block that `allocate` returned. @return the block's size, as `size_of` gives it.
  size_t free(void* block);
  size_t size_of(const void* block) const;
  bool contains(const void* pointer) const { return pointer >= base_ && pointer < base_ + reserved_; }

  /// Gives the memory of all free blocks back to the system.
  void release();

  bool usable() const { return base_ != nullptr; }
  size_t bytes_held() const { return end_ - released_; }  ///< in use or kept
  size_t num_fresh() const { return num_fresh_; }         ///< how often so far memory was taken from the system
  size_t num_blocks() const { return blocks_.size(); }    ///< in use and free

 private:
  struct Block {
    size_t size = 0;
    bool free = false;
    size_t released = 0;  // bytes of a free block that were given back to the system
  };
  using Blocks = std::map<size_t, Block>;  // by offset; they tile [0, end_)

  bool grow(size_t size);
  void take(Blocks::iterator block, size_t size);
  void put(Blocks::iterator block);
  size_t offset_of(const void* block) const { return static_cast<size_t>(static_cast<const char*>(block) - base_); }

  char* base_ = nullptr;
  size_t reserved_ = 0, writable_ = 0, end_ = 0, released_ = 0, num_fresh_ = 0;
  Blocks blocks_;
  std::set<std::pair<size_t, size_t>> free_;  // (size, offset): the smallest that fits, then the lowest
};

}  // namespace athanor::ops
