#pragma once
// Memory that begins at a page, as O_DIRECT wants it.

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace athanor {

/// What O_DIRECT asks of memory, lengths and positions is at most a page on all disks that are in use.
inline constexpr size_t kPageBytes = 4096;

struct FreePages {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using PageAligned = std::unique_ptr<std::byte, FreePages>;

/// @param num_bytes  a multiple of kPageBytes. @throws std::bad_alloc.
inline PageAligned take_pages(size_t num_bytes) {
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(kPageBytes, num_bytes));
  if (!memory) throw std::bad_alloc();
  return PageAligned(memory);
}

}  // namespace athanor
