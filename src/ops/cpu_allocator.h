#pragma once
// Memory of CPU tensors, kept from one step to the next: a steady step takes none from the system.

#include <cstddef>

namespace athanor::ops {

struct CpuMemory {
  size_t in_use_bytes = 0;       ///< of tensors that are alive, as rounded by the allocator
  size_t peak_in_use_bytes = 0;  ///< since start or `reset_peak_cpu_memory`
  size_t held_bytes = 0;         ///< taken from the system and not given back
  size_t num_fresh = 0;          ///< how often memory was taken from the system
};

/// Makes libtorch take CPU tensors' memory from a caching allocator, for the rest of the process. Safe to call again.
/// Large blocks come from one best-fit heap on huge pages, small ones from bins; from any thread.
/// @return false where the process may not reserve addresses (`ulimit -v`): the system's allocator then stays.
bool install_caching_cpu_allocator();

/// Zeros as long as nothing is installed.
CpuMemory cpu_memory();
void reset_peak_cpu_memory();

/// What the calling thread has allocated less what it has freed, whoever's that was: a rank's tensors, where ranks are
/// threads (comm/thread_wire.h) and each frees its own.
struct ThreadCpuMemory {
  std::ptrdiff_t in_use_bytes = 0;
  std::ptrdiff_t peak_in_use_bytes = 0;  ///< since start or `reset_peak_thread_cpu_memory`
};
ThreadCpuMemory thread_cpu_memory();
void reset_peak_thread_cpu_memory();

/// Gives free memory back to the system, if more than `keep_bytes` are held.
void release_cpu_memory(size_t keep_bytes = 0);

}  // namespace athanor::ops
