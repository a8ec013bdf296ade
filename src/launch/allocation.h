#pragma once
// What a scheduler has given to this job: which scheduler it is, its hosts, and the ranks that they have room for.
//
// Sources: the environment of Slurm (SLURM_JOB_ID, SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE), of PBS (PBS_JOBID and
// PBS_NODEFILE, a line for each slot), of LSF (LSB_JOBID, LSB_HOSTS), or a host file of the user. Without a job this
// machine is the only host. Errors: ConfigError.

#include <optional>
#include <string>
#include <vector>

#include "launch/host_list.h"
#include "launch/surroundings.h"

namespace athanor::launch {

enum class Scheduler { kLocal, kSlurm, kPbs, kLsf };

/// "slurm", "pbs", "lsf" or "local".
const char* scheduler_name(Scheduler scheduler);

struct Allocation {
  Scheduler scheduler = Scheduler::kLocal;
  std::string scheduler_from;     ///< "SLURM_JOB_ID is 7"
  std::string job;                ///< the job's number; empty without a job
  std::vector<Host> hosts;        ///< at least one; either all have slots or none
  std::string hosts_from;         ///< "SLURM_JOB_NODELIST"
  std::vector<Host> others = {};  ///< the hosts of the job beyond those that are used

  /// Uses the first hosts only.
  void keep_first(size_t number);

  bool has_slots() const { return hosts[0].slots > 0; }
  bool is_this_machine(const Surroundings& here) const;  ///< alone
};

/// The wishes of the user.
struct AllocationRequest {
  std::string scheduler = "auto";  ///< "auto", or a name of a scheduler
  std::string host_file = {};      ///< its path; empty: none
  std::optional<int> nodes = {};   ///< takes the first hosts
};

/// @throws ConfigError if the environment names two schedulers, if a chosen scheduler has no job here, if hosts of the
///         file are not in the job, or if there are fewer hosts than `nodes`.
Allocation find_allocation(const AllocationRequest& request, const Surroundings& here);

}  // namespace athanor::launch
