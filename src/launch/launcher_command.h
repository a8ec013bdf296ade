#pragma once
// The command that starts the ranks, in the words of each launcher, with a reason for each part.
//
// A launcher is told: the hosts with their ranks, the cores of each rank, and the variables that have to reach the
// ranks. The command is a vector of words that no shell reads; the dry run quotes it for one.

#include <string>
#include <utility>
#include <vector>

#include "launch/allocation.h"
#include "launch/cpu_layout.h"
#include "launch/mpi_flavour.h"
#include "launch/node_devices.h"
#include "launch/rank_count.h"

namespace athanor::launch {

/// All that was found out, which the command is built from.
struct LaunchPlan {
  Allocation allocation;
  Launcher launcher;
  RankCount ranks;
  NodeDevices devices;               ///< those of a node
  CoreShares cores;                  ///< the shares of the ranks of a node
  CpuLayout layout;                  ///< those of a node
  bool is_node_known = true;         ///< false if this machine is none of the hosts
  std::string threads_from;          ///< why the ranks compute with `cores.threads` threads
  bool is_one_machine = true;        ///< the only host is this machine
  bool has_spares_in_use = false;    ///< a spare has a place, so that the hosts are not in the job's order
  std::vector<std::string> command;  ///< what each rank runs
  bool is_training = false;          ///< `athanor train`: its ranks end together
};

struct CommandPart {
  std::vector<std::string> words;
  std::string why;
};
using Variables = std::vector<std::pair<std::string, std::string>>;

struct LaunchCommand {
  std::vector<CommandPart> parts;  ///< their words are the command; for sockets only what each rank runs
  Variables variables;             ///< set in the environment of the launcher, or of each rank for sockets
  /// A line for each rank: for Open MPI with its host and cores, for srun with its host. A word of the command ends
  /// with kRankfile in place of its path.
  std::string rankfile;

  std::vector<std::string> words() const;
};
/// Stands for the path of the rank file.
inline constexpr const char* kRankfile = "athanor.rankfile";

/// @throws ConfigError if the launcher cannot start these numbers of ranks.
LaunchCommand build_command(const LaunchPlan& plan, const Surroundings& here);

/// The variables of each rank that Athanor starts without MPI. @param port  at which the ranks meet.
Variables rank_variables(int rank, int num_ranks, int port);

}  // namespace athanor::launch
