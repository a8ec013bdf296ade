#include "guarded/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace athanor::guarded {
namespace {

// Sizes that differ a little share blocks, as in libtorch's allocators.
size_t rounded(size_t num_bytes) {
  constexpr size_t kLeast = 512;
  if (num_bytes <= kLeast) return kLeast;
  const size_t step = std::max(kLeast, std::bit_floor(num_bytes) / 4);
  return (num_bytes + step - 1) / step * step;
}

// What libtorch's allocator of a device counts as in use.
size_t counted(size_t num_bytes) {
  constexpr size_t kBlock = 512;
  return (num_bytes + kBlock - 1) / kBlock * kBlock;
}

}  // namespace

Memory::Memory(Queues& queues, size_t capacity) : queues_(queues), capacity_(capacity), limit_(capacity) {
  const int file = ::memfd_create("guarded-device", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(capacity)) != 0) fail_errno("cannot make", "guarded memory");
  const auto map = [&](int protection) {
    void* at = ::mmap(nullptr, capacity, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED) fail_errno("cannot map", "guarded memory");
    return static_cast<std::byte*>(at);
  };
  closed_ = map(PROT_NONE);
  open_ = map(PROT_READ | PROT_WRITE);
  ::close(file);
}

Memory::~Memory() {
  ::munmap(closed_, capacity_);
  ::munmap(open_, capacity_);
}

void* Memory::allocate(size_t num_bytes, Queues::StreamId stream) {
  const std::lock_guard lock(mutex_);
  collect();
  const size_t size = rounded(num_bytes);
  const int64_t pool = stream == pool_stream_ ? pool_ : 0;
  auto& free = free_[{pool, stream, size}];
  const bool again = pool != 0 && !free.empty();  // needs no other memory
  if (num_allocations_++ == failing_ || (!again && size > free_now())) return nullptr;
  if (again) free_pooled_ -= size;
  void* closed = nullptr;
  if (!free.empty()) {
    closed = free.back();
    free.pop_back();
  } else {
    if (end_ + size > capacity_) return nullptr;
    closed = closed_ + end_;
    std::memset(open_ + end_, kPoison, size);
    end_ += size;
  }
  in_use_ += size;
  peak_ = std::max(peak_, in_use_);
  asked_ += counted(num_bytes);
  peak_asked_ = std::max(peak_asked_, asked_);
  used_[closed] = {size, counted(num_bytes), stream, pool, {}};
  return closed;
}

void Memory::free(void* closed) {
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(closed);
  ATHANOR_ASSERT(found != used_.end());
  const Block block = found->second;
  used_.erase(found);
  in_use_ -= block.num_bytes;
  asked_ -= block.asked;
  if (block.users.empty()) return give_back(closed, block);
  Waiting waiting{closed, block, {}};
  for (const auto user : block.users) waiting.uses.push_back(queues_.record(user));
  waiting_.push_back(std::move(waiting));
}

void Memory::note_use(void* closed, Queues::StreamId stream) {
  const std::lock_guard lock(mutex_);
  Block& block = used_.at(closed);
  if (stream != block.stream) block.users.insert(stream);
}

// What the block's own stream has queued before may still use it; what is queued later comes after the poison.
void Memory::give_back(void* closed, const Block& block) {
  // The poison of what a graph frees is part of the graph.
  queues_.submit_uncounted(
      block.stream, "poison", [at = open(closed), size = block.num_bytes] { std::memset(at, kPoison, size); },
      /*recorded=*/block.pool != 0);
  free_[{block.pool, block.stream, block.num_bytes}].push_back(closed);
  if (block.pool != 0) free_pooled_ += block.num_bytes;
}

int64_t Memory::begin_pool(Queues::StreamId stream) {
  const std::lock_guard lock(mutex_);
  pool_stream_ = stream;
  return pool_ = ++last_pool_;
}

void Memory::end_pool() {
  const std::lock_guard lock(mutex_);
  pool_ = 0;
}

void Memory::release_pool(int64_t pool) {
  const std::lock_guard lock(mutex_);
  for (auto& [closed, block] : used_)
    if (block.pool == pool) block.pool = 0;
  for (Waiting& each : waiting_)
    if (each.block.pool == pool) each.block.pool = 0;
  for (auto& [kind, blocks] : free_) {
    if (kind.pool != pool) continue;
    auto& free = free_[{0, kind.stream, kind.num_bytes}];
    free.insert(free.end(), blocks.begin(), blocks.end());
    free_pooled_ -= blocks.size() * kind.num_bytes;
    blocks.clear();
  }
}

void Memory::collect() {
  std::erase_if(waiting_, [&](const Waiting& each) {
    if (!std::ranges::all_of(each.uses, [&](const auto& use) { return queues_.is_reached(use); })) return false;
    give_back(each.closed, each.block);
    return true;
  });
}

void Memory::set_limit(size_t num_bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = std::min(num_bytes, capacity_);
}

int64_t Memory::fail_at(int64_t index) {
  const std::lock_guard lock(mutex_);
  failing_ = index;
  return std::exchange(num_allocations_, 0);
}

size_t Memory::allocated() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

size_t Memory::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

size_t Memory::asked() const {
  const std::lock_guard lock(mutex_);
  return asked_;
}

size_t Memory::peak_asked() const {
  const std::lock_guard lock(mutex_);
  return peak_asked_;
}

void Memory::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = in_use_;
  peak_asked_ = asked_;
}

size_t Memory::free_pooled() const {
  const std::lock_guard lock(mutex_);
  return free_pooled_;
}

size_t Memory::taken() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

size_t Memory::free_bytes() const {
  const std::lock_guard lock(mutex_);
  return free_now();
}

}  // namespace athanor::guarded
