#pragma once
// Resources of this process: memory, processors, and the machine's name. Linux only.

#include <cstdint>
#include <filesystem>
#include <string>

namespace athanor {

/// The folders in which the kernel publishes these figures. Tests pass other folders.
struct KernelFolders {
  std::filesystem::path proc = "/proc", cgroup = "/sys/fs/cgroup";
};

/// Return the bytes of this process (without other processes of the run) that are in RAM now, and the peak of these so
/// far; 0 if the kernel does not report it.
uint64_t resident_bytes();
uint64_t peak_resident_bytes();

/// Returns the bytes that may still be allocated without swapping: the machine's available memory, or less if a control
/// group (a container, a batch job) allows less. Page cache counts as available in both. Returns UINT64_MAX if neither
/// is known.
uint64_t available_memory_bytes(const KernelFolders& folders = {});

/// Returns the number of processors that this process may run on: its affinity, or fewer if a control group's quota,
/// rounded up, allows fewer. At least 1.
int cpu_count(const KernelFolders& folders = {});

/// Returns the number of threads to start if the setting `name` (for messages) has the value `wanted`; 0 means
/// cpu_count().
/// @throws ConfigError, with the number of processors, for more threads than these could ever use (64, or four for each
///         processor if that is more), and below 0.
int thread_count(const char* name, int64_t wanted);

/// Returns the number of processors of the machine that are online, whether this process may run on them or not.
int machine_cpu_count();

/// Returns the name of the processors as the kernel reports it, such as "Intel(R) Xeon(R) Platinum 8480+"; "unknown
/// model" if it reports none, as on most Arm machines.
std::string cpu_model(const KernelFolders& folders = {});

/// Lets other threads have the processors first, from now on: for work of the calling thread for which none waits.
void lower_thread_priority();

/// Returns the machine's name, or "localhost" if it has none.
std::string host_name();

}  // namespace athanor
