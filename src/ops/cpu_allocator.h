#pragma once
// Keeps the memory of CPU tensors from one step to the next: a steady step takes none from the system.

#include <cstddef>

namespace athanor::ops {

struct CpuMemory {
  size_t in_use_bytes = 0;       ///< bytes of tensors that are alive, as rounded by the allocator
  size_t peak_in_use_bytes = 0;  ///< since start or `reset_peak_cpu_memory`
  size_t held_bytes = 0;         ///< taken from the system and not given back
  size_t num_fresh = 0;          ///< how often since start memory was taken from the system
};

/// Makes libtorch take CPU tensors' memory from a caching allocator, for the rest of the process. It may be called
/// again. Large blocks come from one best-fit heap on huge pages, small ones from bins; any thread may allocate. If
/// memory is used up, creating a tensor throws Error with exit_code::kMemory.
/// @return false if the process may not reserve addresses (`ulimit -v`): the system's allocator then stays.
bool install_caching_cpu_allocator();

/// Returns the allocator's counts; zeros if it is not installed.
CpuMemory cpu_memory();
void reset_peak_cpu_memory();

/// Returns the bytes of the block that a tensor of `bytes` gets. A large one may be up to 8 KiB larger, if the rest of
/// the free block that it is cut from is too small for another.
size_t block_bytes(size_t bytes);

/// The memory that the calling thread has allocated less what it has freed, whichever thread allocated that. If ranks
/// are threads (wire/thread_wire.h) and each frees its own tensors, this is the memory of a rank's tensors.
struct ThreadCpuMemory {
  std::ptrdiff_t in_use_bytes = 0;
  std::ptrdiff_t peak_in_use_bytes = 0;  ///< since start or `reset_peak_thread_cpu_memory`
};
ThreadCpuMemory thread_cpu_memory();
void reset_peak_thread_cpu_memory();

/// Gives the memory of all free large blocks back to the system, if more than `keep_bytes` are held.
void release_cpu_memory(size_t keep_bytes = 0);

}  // namespace athanor::ops
