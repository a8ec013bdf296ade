#pragma once
// How many threads a process computes with where nobody set a number: what it may run on, what its environment asks
// for, and what is left of that where several ranks share a host.

#include <cstdint>
#include <optional>
#include <string>

namespace athanor {

/// What bears on the number.
struct ThreadLimits {
  int processors = 1;     ///< that this process may run on: its affinity and its control groups' quota
  int of_host = 1;        ///< that any rank of this host may run on; a quota is all ranks' together
  int ranks_of_host = 1;  ///< this one among them
  std::optional<int> omp_num_threads = {}, slurm_cpus_per_task = {};
};

struct ThreadShare {
  int threads = 1;
  bool asked_for = false;  ///< by somebody, who is not to be second-guessed
  std::string why;         ///< completes "2 threads: …"
};

/// What this process finds, as the only rank of its host.
ThreadLimits find_thread_limits();

/// OMP_NUM_THREADS is taken as far as there are processors: more threads than those only wait for each other. Without
/// it, this rank's even share of the host's processors, of which SLURM_CPUS_PER_TASK may leave fewer.
ThreadShare share_threads(const ThreadLimits& limits);

/// The first number of a list as OpenMP reads it ("4,2"), or none.
std::optional<int> parse_thread_count(const char* text);

}  // namespace athanor
