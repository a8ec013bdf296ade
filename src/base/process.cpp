#include "base/process.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace athanor {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kNoLimit = UINT64_MAX;

// Returns the number after `key` in a file of lines "key value" or "Key:  value kB"; the caller knows the unit.
std::optional<uint64_t> find_number(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// Returns the number in a file; nothing if it is "max" or if there is no such file.
std::optional<uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

uint64_t own_status_bytes(std::string_view key) { return find_number("/proc/self/status", key).value_or(0) * 1024; }

// Returns the folders of the groups that this process is in, from its own to the root; each of them may limit it.
// Inside a container the path may be that of the host, which is not visible; then the root is the container's own.
// @param controller  "memory" or "cpu" for a hierarchy of version 1; "" for version 2.
std::vector<fs::path> find_groups(const KernelFolders& folders, std::string_view controller) {
  std::ifstream file(folders.proc / "self" / "cgroup");
  std::vector<fs::path> groups;
  for (std::string line; std::getline(file, line);) {  // lines "4:memory,other:/path"; in version 2 "0::/path"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers != (controller.empty() ? ",," : controllers) ||
        controllers.find("," + std::string(controller) + ",") == std::string::npos) {
      continue;
    }
    const fs::path root = folders.cgroup / controller;
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path(); !path.empty(); path = path.parent_path()) {
      if (fs::is_directory(root / path)) groups.push_back(root / path);
    }
    groups.push_back(root);
  }
  return groups;
}

// Returns the memory that a group may still take. Its page cache counts as used, but is given up on demand.
uint64_t group_available(uint64_t limit, uint64_t used, uint64_t cache) {
  used -= std::min(used, cache);
  return limit - std::min(limit, used);
}

uint64_t cgroup_available_bytes(const KernelFolders& folders) {
  uint64_t available = kNoLimit;
  for (const auto& group : find_groups(folders, "")) {
    const uint64_t limit = std::min(read_number(group / "memory.max").value_or(kNoLimit),
                                    read_number(group / "memory.high").value_or(kNoLimit));
    if (limit == kNoLimit) continue;
    const uint64_t cache = find_number(group / "memory.stat", "inactive_file").value_or(0) +
                           find_number(group / "memory.stat", "active_file").value_or(0);
    available = std::min(available, group_available(limit, read_number(group / "memory.current").value_or(0), cache));
  }
  for (const auto& group : find_groups(folders, "memory")) {
    const auto limit = read_number(group / "memory.limit_in_bytes");  // "no limit" is a number near 2^63
    if (!limit) continue;
    const uint64_t cache = find_number(group / "memory.stat", "total_inactive_file").value_or(0) +
                           find_number(group / "memory.stat", "total_active_file").value_or(0);
    available =
        std::min(available, group_available(*limit, read_number(group / "memory.usage_in_bytes").value_or(0), cache));
  }
  return available;
}

// Returns the processor time per second that quotas allow; infinity without one.
double cgroup_cpus(const KernelFolders& folders) {
  double cpus = INFINITY;
  for (const auto& group : find_groups(folders, "")) {
    std::ifstream file(group / "cpu.max");  // "150000 100000" or "max 100000"
    double quota_us = 0, period_us = 0;
    if (file >> quota_us >> period_us && period_us > 0) cpus = std::min(cpus, quota_us / period_us);
  }
  for (const auto& group : find_groups(folders, "cpu")) {
    const auto quota_us = read_number(group / "cpu.cfs_quota_us");  // -1 (no quota) reads as 2^64 - 1, which is ample
    const auto period_us = read_number(group / "cpu.cfs_period_us");
    if (quota_us && period_us && *period_us > 0)
      cpus = std::min(cpus, static_cast<double>(*quota_us) / static_cast<double>(*period_us));
  }
  return cpus;
}

int affinity_cpus() {
  // The kernel refuses a mask that is smaller than its own, so the mask grows until it fits.
  for (int num_cpus = 1024; num_cpus <= (1 << 20); num_cpus *= 2) {
    cpu_set_t* mask = CPU_ALLOC(num_cpus);
    const size_t size = CPU_ALLOC_SIZE(num_cpus);
    CPU_ZERO_S(size, mask);
    const int count = ::sched_getaffinity(0, size, mask) == 0 ? CPU_COUNT_S(size, mask) : 0;
    CPU_FREE(mask);
    if (count > 0) return count;
  }
  return machine_cpu_count();
}

}  // namespace

uint64_t resident_bytes() { return own_status_bytes("VmRSS:"); }
// The kernel counts pages in batches for each thread, so the peak that it reports may be a few pages below the present
// size.
uint64_t peak_resident_bytes() { return std::max(own_status_bytes("VmHWM:"), resident_bytes()); }

uint64_t available_memory_bytes(const KernelFolders& folders) {
  const auto machine_kib = find_number(folders.proc / "meminfo", "MemAvailable:");
  return std::min(machine_kib ? *machine_kib * 1024 : kNoLimit, cgroup_available_bytes(folders));
}

int cpu_count(const KernelFolders& folders) {
  // The quota is rounded up: it stops all threads of a group together, so 2 threads under a quota of 1.5 do more work
  // than 1 thread.
  const double quota = std::ceil(cgroup_cpus(folders));
  const int cpus = affinity_cpus();
  return quota < cpus ? std::max(1, static_cast<int>(quota)) : cpus;
}

int machine_cpu_count() { return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))); }

std::string cpu_model(const KernelFolders& folders) {
  std::ifstream file(folders.proc / "cpuinfo");
  for (std::string line; std::getline(file, line);) {  // "model name\t: Intel(R) Xeon(R) Platinum 8480+"
    if (!line.starts_with("model name")) continue;
    const auto begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (begin != std::string::npos) return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
  }
  return "unknown model";
}

int thread_count(const char* name, int64_t wanted) {
  // This is enough for tests and for threads that wait, and far below the number that exhausts a process's threads or
  // the memory of their stacks.
  constexpr int64_t kAlways = 64, kTimesProcessors = 4;
  const int64_t processors = cpu_count(), most = std::max(kAlways, kTimesProcessors * processors);
  ATHANOR_CHECK(wanted >= 0 && wanted <= most,
                "{} ({}): this process may run on {} processors; use 0 for one thread on each, or at most {}", name,
                wanted, processors, most);
  return static_cast<int>(wanted > 0 ? wanted : processors);
}

void lower_thread_priority() {
  constexpr int kNicer = 10;  // the most is 19; it still gets about a tenth of a processor that others want, too
  // Linux keeps this value for each thread; other systems may refuse it.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNicer);
}

std::string host_name() {
  char name[256] = {};  // Linux allows 64
  return ::gethostname(name, sizeof(name) - 1) == 0 && name[0] ? name : "localhost";
}

}  // namespace athanor
