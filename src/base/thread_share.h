#pragma once
// The default number of threads that a process computes with: it follows from the processors that the process may run
// on, its environment, and the number of ranks that share the host.

#include <cstdint>
#include <optional>
#include <string>

namespace athanor {

/// The limits that determine the number of threads.
struct ThreadLimits {
  int processors = 1;     ///< processors that this process may run on: its affinity and its control groups' quota
  int of_host = 1;        ///< processors that at least one rank of this host may run on; the quota is for all together
  int ranks_of_host = 1;  ///< number of ranks on this host, this one included
  std::optional<int> omp_num_threads = {}, slurm_cpus_per_task = {};
};

struct ThreadShare {
  int threads = 1;
  bool asked_for = false;  ///< the user asked for this number, so it must not be changed
  std::string why;         ///< the reason, for the log, which prints it in brackets after "2 threads"
  bool multiply = true;    ///< matrices are multiplied by these threads; false: by a device
};

/// Returns the limits that this process finds, as if it were the only rank of its host.
ThreadLimits find_thread_limits();

/// Returns OMP_NUM_THREADS, but at most the number of processors, since more threads only wait for each other. Without
/// OMP_NUM_THREADS it returns this rank's even share of the host's processors, or SLURM_CPUS_PER_TASK if that is less.
ThreadShare share_threads(const ThreadLimits& limits);

/// Returns the first number of a list as OpenMP reads it ("4,2"); nothing if `text` is null or has another form.
std::optional<int> parse_thread_count(const char* text);

}  // namespace athanor
