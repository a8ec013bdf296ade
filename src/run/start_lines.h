#pragma once
// What a run tells at its start.

#include <string>
#include <vector>

#include "base/thread_share.h"
#include "train/train_state.h"

namespace athanor::inline run {

/// Tells which hosts the ranks are on, over which network they talk, and on which CPUs they compute. It comes before
/// the checks that read data and need memory: what they find may be due to a host. Collective.
void say_where_it_runs(comm::World& world);

/// Tells how large the model is, which optimizer updates what, how many threads each rank has, and how the ranks share
/// the work. Collective.
void say_what_starts(const TrainState& state, const ThreadShare& threads);

// What a start tells about the program and the machines, so that a log states what ran where.

/// Returns one line each for the program (version, commit, libtorch, MPI) and for the command. The hosts have one, with
/// their ranks and the job of the scheduler, and so has the CPU of the first rank.
/// @param hosts    for each rank.
/// @param network  the MPI that connects the ranks; empty for one rank.
/// @param cpu      cpu_of_host() of the first rank.
std::vector<std::string> start_facts(const std::vector<std::string>& hosts, const std::string& network,
                                     const std::string& cpu);

/// Returns the CPU of this host as a text to compare, such as "AMD EPYC 9654 with avx2, avx512, avx512_bf16; 192
/// processors".
std::string cpu_of_host();

/// Returns the model and the instructions of this host's CPU, as records have it: "AMD EPYC 9654 with avx2, avx512".
std::string model_of_cpu();

/// Returns a text that names the first hosts whose CPUs differ from that of the first rank, with their ranks, and how
/// many ranks these are; "" if all have the same.
/// @param cpus, hosts  cpu_of_host() and host of each rank.
std::string describe_other_cpus(const std::vector<std::string>& cpus, const std::vector<std::string>& hosts);

/// Returns "8 ranks on 2 hosts: node1 (0 to 3), node2 (4 to 7)": consecutive ranks of a host together, four at most.
std::string describe_hosts(const std::vector<std::string>& hosts);

/// Returns "Slurm job 123" or "PBS job 7.server" from the environment, or "".
std::string scheduler_job();

}  // namespace athanor::inline run
