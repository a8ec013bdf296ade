#pragma once
// What this process has and may have: memory, processors, the machine's name. Linux; all figures are its own, without
// other processes of the run.

#include <cstdint>
#include <filesystem>
#include <string>

namespace athanor {

/// Where the kernel tells it. Tests lay out other folders.
struct KernelFolders {
  std::filesystem::path proc = "/proc", cgroup = "/sys/fs/cgroup";
};

/// Memory of this process that is in RAM now, and the most there ever was. 0 where the kernel does not say.
uint64_t resident_bytes();
uint64_t peak_resident_bytes();

/// Memory that may still be taken without swapping: what the machine has available, or less where a control group (a
/// container, a batch job) allows less. Page cache counts as available in both.
uint64_t available_memory_bytes(const KernelFolders& folders = {});

/// Processors this process may run on: its affinity, or fewer where a control group's quota allows fewer. At least 1.
int cpu_count(const KernelFolders& folders = {});

/// How many threads to start where `wanted` were asked for by the setting `name`; 0 means cpu_count().
/// @throws ConfigError, with the number of processors, for more than they could ever make use of.
int thread_count(const char* name, int64_t wanted);

std::string host_name();

}  // namespace athanor
