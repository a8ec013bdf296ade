#include "base/thread_share.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/start_processors.h"

namespace athanor {

std::optional<int> parse_thread_count(const char* text) {
  if (!text) return {};
  while (*text == ' ') ++text;
  const char* end = text + std::strlen(text);
  int count = 0;
  const auto [rest, error] = std::from_chars(text, end, count);
  if (error != std::errc{} || count < 1 || (rest != end && *rest != ',' && *rest != ' ')) return {};
  return count;
}

ThreadLimits find_thread_limits() {
  const int processors = start_processors().count;
  return {processors, processors, 1, parse_thread_count(std::getenv("OMP_NUM_THREADS")),
          parse_thread_count(std::getenv("SLURM_CPUS_PER_TASK"))};
}

ThreadShare share_threads(const ThreadLimits& limits) {
  const auto may_run_on = [&] {
    return fmt::format("this process may run on {} processor{}", limits.processors, limits.processors == 1 ? "" : "s");
  };
  if (limits.omp_num_threads) {
    const int asked = *limits.omp_num_threads;
    if (asked <= limits.processors) return {asked, true, "OMP_NUM_THREADS"};
    return {limits.processors, true, fmt::format("OMP_NUM_THREADS is {}, but {}", asked, may_run_on())};
  }
  const int even = std::max(1, limits.of_host / limits.ranks_of_host), own = std::min(limits.processors, even);
  if (limits.slurm_cpus_per_task && *limits.slurm_cpus_per_task < own)
    return {*limits.slurm_cpus_per_task, false, "SLURM_CPUS_PER_TASK"};
  if (even < limits.processors) {
    return {even, false,
            fmt::format("{} ranks share {} processors of this host", limits.ranks_of_host, limits.of_host)};
  }
  return {own, false, may_run_on()};
}

}  // namespace athanor
