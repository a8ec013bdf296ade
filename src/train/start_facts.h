#pragma once
// What a start tells about the program and the machines, so that a log states what ran where.

#include <string>
#include <vector>

namespace athanor {

/// Returns one line each for the program (version, commit, libtorch, MPI, CPU), for the command, and for the hosts with
/// their ranks and the job of the scheduler.
/// @param hosts    for each rank.
/// @param network  the MPI that connects the ranks; empty for one rank.
std::vector<std::string> start_facts(const std::vector<std::string>& hosts, const std::string& network);

/// Returns "8 ranks on 2 hosts: node1 (0 to 3), node2 (4 to 7)": consecutive ranks of a host together, four at most.
std::string describe_hosts(const std::vector<std::string>& hosts);

/// Returns "Slurm job 123" or "PBS job 7.server" from the environment, or "".
std::string scheduler_job();

}  // namespace athanor
