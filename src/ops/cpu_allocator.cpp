#include "ops/cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "ops/block_heap.h"

namespace athanor::ops {
namespace {

// Blocks up to 16 KiB, by size class. Each class has a stack of free blocks, cut from slabs that stay with one class.
// They are in a separate range, so that a scalar that lives long does not split the free memory of large blocks.
class SmallBins {
 public:
  static constexpr size_t kLargest_bytes = 16 << 10;

  explicit SmallBins(size_t reserved_bytes) : slabs_(reserved_bytes) {}

  static size_t rounded(size_t bytes) { return class_bytes(class_of(bytes)); }
  bool usable() const { return slabs_.usable(); }
  bool contains(const void* pointer) const { return slabs_.contains(pointer); }
  size_t bytes_held() const { return slabs_.bytes_held(); }
  size_t num_fresh() const { return slabs_.num_fresh(); }

  /// Returns null when memory is used up; otherwise adds the block's size to `in_use`.
  void* allocate(size_t bytes, size_t& in_use) {
    const size_t c = class_of(bytes);
    if (!free_[c] && !refill(c)) return nullptr;
    Free* block = free_[c];
    free_[c] = block->next;
    in_use += class_bytes(c);
    return block;
  }

  void free(void* pointer, size_t& in_use) {
    const size_t c = class_of_slab_[static_cast<size_t>(static_cast<char*>(pointer) - first_slab_) / kSlab_bytes];
    free_[c] = new (pointer) Free{free_[c]};
    in_use -= class_bytes(c);
  }

 private:
  struct Free {
    Free* next;
  };
  static constexpr size_t kSlab_bytes = 64 << 10;
  static constexpr size_t kUnit_bytes = 64;  // a cache line, and the alignment that libtorch expects
  // The classes are 64, 128, 192, 256, then four for each doubling: 320, 384, 448, 512, 640, … 16 KiB.
  static constexpr size_t kNumClasses = 4 + 4 * 6;

  static size_t class_of(size_t bytes) {
    const size_t units = (bytes + kUnit_bytes - 1) / kUnit_bytes;
    if (units <= 4) return units - 1;
    const auto doubling = static_cast<size_t>(std::bit_width(units - 1)) - 1;  // 2^doubling < units ≤ 2^(doubling+1)
    const size_t step = (units - 1 - (size_t{1} << doubling)) >> (doubling - 2);
    return 4 * (doubling - 1) + step;
  }
  static size_t class_bytes(size_t c) {
    if (c < 4) return (c + 1) * kUnit_bytes;
    const size_t doubling = c / 4 + 1, step = c % 4;
    return ((size_t{1} << doubling) + ((step + 1) << (doubling - 2))) * kUnit_bytes;
  }

  bool refill(size_t c) {
    auto* slab = static_cast<char*>(slabs_.allocate(kSlab_bytes));
    if (!slab) return false;
    if (!first_slab_) first_slab_ = slab;  // slabs are never freed, so that they follow each other
    ATHANOR_ASSERT(slab == first_slab_ + class_of_slab_.size() * kSlab_bytes);
    class_of_slab_.push_back(c);
    const size_t size = class_bytes(c);
    for (size_t begin = kSlab_bytes / size * size; begin >= size; begin -= size)
      free_[c] = new (slab + begin - size) Free{free_[c]};
    return true;
  }

  BlockHeap slabs_;
  char* first_slab_ = nullptr;
  std::vector<size_t> class_of_slab_;
  std::array<Free*, kNumClasses> free_{};
};

// Each thread counts for itself, without a lock.
thread_local ThreadCpuMemory of_thread;

void count_for_thread(size_t before, size_t after) {
  of_thread.in_use_bytes += static_cast<std::ptrdiff_t>(after) - static_cast<std::ptrdiff_t>(before);
  of_thread.peak_in_use_bytes = std::max(of_thread.peak_in_use_bytes, of_thread.in_use_bytes);
}

class CachingCpuAllocator final : public c10::Allocator {
 public:
  explicit CachingCpuAllocator(size_t reserved_bytes) : large_(reserved_bytes), small_(reserved_bytes) {}

  bool usable() const { return large_.usable() && small_.usable(); }

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &deleter; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  void free(void* block) {
    const std::lock_guard lock(mutex_);
    const size_t before = memory_.in_use_bytes;
    if (small_.contains(block)) {
      small_.free(block, memory_.in_use_bytes);
    } else {
      memory_.in_use_bytes -= large_.free(block);
    }
    count_for_thread(before, memory_.in_use_bytes);
  }

  CpuMemory memory() const {
    const std::lock_guard lock(mutex_);
    CpuMemory now = memory_;
    now.held_bytes = large_.bytes_held() + small_.bytes_held();
    now.num_fresh = large_.num_fresh() + small_.num_fresh();
    return now;
  }

  void reset_peak() {
    const std::lock_guard lock(mutex_);
    memory_.peak_in_use_bytes = memory_.in_use_bytes;
  }

  void release(size_t keep_bytes) {
    const std::lock_guard lock(mutex_);
    if (large_.bytes_held() + small_.bytes_held() > keep_bytes) large_.release();
  }

 private:
  static void deleter(void* block);

  void* allocate_locked(size_t bytes) {
    if (bytes <= SmallBins::kLargest_bytes) return small_.allocate(bytes, memory_.in_use_bytes);
    void* block = large_.allocate(bytes);
    if (block) memory_.in_use_bytes += large_.size_of(block);
    return block;
  }

  mutable std::mutex mutex_;
  BlockHeap large_;
  SmallBins small_;
  CpuMemory memory_;
};

// Addresses cost nothing; four times the memory of the machine leaves room for memory that was given back in between.
size_t addresses_to_reserve() {
  return 4 * static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
}

// The allocator is global, as the memory of a process is one thing: libtorch keeps a plain pointer to it, and tensors
// may outlive main.
CachingCpuAllocator& the_allocator() {
  static auto* const allocator = new CachingCpuAllocator(addresses_to_reserve());
  return *allocator;
}

void CachingCpuAllocator::deleter(void* block) { the_allocator().free(block); }

c10::DataPtr CachingCpuAllocator::allocate(size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &deleter, cpu};
  const std::lock_guard lock(mutex_);
  const size_t before = memory_.in_use_bytes;
  void* block = allocate_locked(bytes);
  if (!block) {
    throw Error(fmt::format("out of memory: a tensor of {} bytes is needed, {} bytes are in use; a smaller "
                            "train.micro_batch_size or parallelism.recompute lowers the need",
                            bytes, memory_.in_use_bytes),
                exit_code::kMemory);
  }
  memory_.peak_in_use_bytes = std::max(memory_.peak_in_use_bytes, memory_.in_use_bytes);
  count_for_thread(before, memory_.in_use_bytes);
  return {block, block, &deleter, cpu};
}

}  // namespace

bool install_caching_cpu_allocator() {
  rlimit addresses{};
  if (getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY) return false;
  if (!the_allocator().usable()) return false;
  c10::SetCPUAllocator(&the_allocator(), /*priority=*/1);
  return true;
}

CpuMemory cpu_memory() { return the_allocator().memory(); }

size_t block_bytes(size_t bytes) {
  if (bytes == 0) return 0;
  if (bytes <= SmallBins::kLargest_bytes) return SmallBins::rounded(bytes);
  return (bytes + BlockHeap::kGranule_bytes - 1) / BlockHeap::kGranule_bytes * BlockHeap::kGranule_bytes;
}

void reset_peak_cpu_memory() { the_allocator().reset_peak(); }

ThreadCpuMemory thread_cpu_memory() { return of_thread; }

void reset_peak_thread_cpu_memory() { of_thread.peak_in_use_bytes = of_thread.in_use_bytes; }

void release_cpu_memory(size_t keep_bytes) { the_allocator().release(keep_bytes); }

}  // namespace athanor::ops
