#pragma once
// What a scheduler has given to this job: which scheduler it is, its hosts, and the ranks that they have room for.
//
// Sources: a host file of the user, or the environment of a scheduler. Slurm has SLURM_JOB_ID, SLURM_JOB_NODELIST and
// SLURM_TASKS_PER_NODE; of a heterogeneous job SLURM_HET_SIZE and these for each of its components. PBS has PBS_JOBID
// and PBS_NODEFILE, a line for each slot. LSF has LSB_JOBID, and LSB_HOSTS, LSB_DJOB_HOSTFILE or LSB_MCPU_HOSTS.
// Without a job this machine is the only host; in a job of another system that has to be asked for (allocation.cpp).
// Errors: ConfigError.

#include <map>
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
  /// In a heterogeneous job of Slurm: the component of each host, whose order is that of `hosts`. Else empty.
  std::map<std::string, int> component_of = {};

  /// Uses the first hosts only.
  void keep_first(size_t number);

  bool is_heterogeneous() const { return !component_of.empty(); }
  int component(const std::string& host) const;
  bool has_slots() const { return hosts[0].slots > 0; }
  bool is_this_machine(const Surroundings& here) const;  ///< alone
};

/// The wishes of the user.
struct AllocationRequest {
  std::string scheduler = "auto";  ///< "auto", or a name of a scheduler
  std::string host_file = {};      ///< its path; empty: none
  std::optional<int> nodes = {};   ///< takes the first hosts
};

/// @throws ConfigError if the environment names two schedulers or a job whose hosts are not read, or if a chosen
///         scheduler has no job here. And if hosts of the file are not in the job, or there are fewer than `nodes`.
Allocation find_allocation(const AllocationRequest& request, const Surroundings& here);

}  // namespace athanor::launch
