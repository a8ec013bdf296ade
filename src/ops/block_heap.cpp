#include "ops/block_heap.h"

#include <sys/mman.h>

#include "base/error.h"

namespace athanor::ops {
namespace {

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

BlockHeap::BlockHeap(size_t reserved_bytes) {
  const size_t bytes = round_up(reserved_bytes, kGrowth_bytes);
  // One unit more is mapped, so that the range can begin at a huge page.
  void* range = mmap(nullptr, bytes + kGrowth_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return;
  const auto address = reinterpret_cast<size_t>(range), aligned = round_up(address, kGrowth_bytes);
  if (aligned > address) munmap(range, aligned - address);
  base_ = static_cast<char*>(range) + (aligned - address);
  if (const size_t rest = address + kGrowth_bytes - aligned; rest > 0) munmap(base_ + bytes, rest);
  reserved_ = bytes;
  madvise(base_, reserved_, MADV_HUGEPAGE);  // this is advice: if it is refused, pages are small
}

BlockHeap::~BlockHeap() {
  if (base_) munmap(base_, reserved_);
}

// Extends the heap until its last block is free and at least `size` large.
bool BlockHeap::grow(size_t size) {
  auto last = blocks_.empty() ? blocks_.end() : std::prev(blocks_.end());
  const bool joins = last != blocks_.end() && last->second.free;
  const size_t begin = joins ? last->first : end_;
  const size_t end = round_up(begin + size, kGrowth_bytes);
  if (end > reserved_) return false;
  if (end > writable_) {
    if (mprotect(base_ + writable_, end - writable_, PROT_READ | PROT_WRITE) != 0) return false;
    writable_ = end;
  }
  ++num_fresh_;
  if (joins) {
    free_.erase({last->second.size, begin});
    last->second.size = end - begin;
    free_.emplace(last->second.size, begin);
  } else {
    blocks_.emplace(begin, Block{end - begin, true, 0});
    free_.emplace(end - begin, begin);
  }
  end_ = end;
  return true;
}

// Cuts a free block down to `size` and marks it used; the rest stays free.
void BlockHeap::take(Blocks::iterator block, size_t size) {
  const auto [offset, whole] = *block;
  free_.erase({whole.size, offset});
  if (whole.released > 0) {  // all of it counts as taken back: the heap does not store which pages were released
    released_ -= whole.released;
    ++num_fresh_;
  }
  block->second = {whole.size, false, 0};
  if (whole.size - size < kLeastRest_bytes) return;
  block->second.size = size;
  blocks_.emplace_hint(std::next(block), offset + size, Block{whole.size - size, true, 0});
  free_.emplace(whole.size - size, offset + size);
}

// Marks a block free and joins it with its neighbours.
void BlockHeap::put(Blocks::iterator block) {
  block->second.free = true;
  const auto absorb_next = [&](Blocks::iterator left) {
    const auto right = std::next(left);
    if (right == blocks_.end() || !right->second.free) return;
    free_.erase({right->second.size, right->first});
    left->second.size += right->second.size;
    left->second.released += right->second.released;
    blocks_.erase(right);
  };
  absorb_next(block);
  if (block != blocks_.begin() && std::prev(block)->second.free) {
    --block;
    free_.erase({block->second.size, block->first});
    absorb_next(block);
  }
  free_.emplace(block->second.size, block->first);
}

void* BlockHeap::allocate(size_t bytes) {
  if (!usable() || bytes > reserved_) return nullptr;
  const size_t size = round_up(bytes, kGranule_bytes);
  auto found = free_.lower_bound({size, 0});
  if (found == free_.end()) {
    if (!grow(size)) return nullptr;
    found = free_.lower_bound({size, 0});
  }
  const size_t offset = found->second;
  take(blocks_.find(offset), size);
  return base_ + offset;
}

size_t BlockHeap::size_of(const void* block) const {
  const auto found = blocks_.find(offset_of(block));
  ATHANOR_ASSERT(found != blocks_.end() && !found->second.free);
  return found->second.size;
}

size_t BlockHeap::free(void* block) {
  const auto found = blocks_.find(offset_of(block));
  ATHANOR_ASSERT(found != blocks_.end() && !found->second.free);
  const size_t size = found->second.size;
  put(found);
  return size;
}

void BlockHeap::release() {
  constexpr size_t kPage_bytes = 4096;
  for (const auto& [size, offset] : free_) {
    Block& block = blocks_.at(offset);
    const size_t begin = round_up(offset, kPage_bytes), end = (offset + size) / kPage_bytes * kPage_bytes;
    if (end <= begin || end - begin <= block.released) continue;
    if (madvise(base_ + begin, end - begin, MADV_DONTNEED) != 0) continue;
    released_ += end - begin - block.released;
    block.released = end - begin;
  }
}

}  // namespace athanor::ops
