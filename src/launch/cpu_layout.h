#pragma once
// The cores of this node, and how the ranks of a node share them.
//
// A rank for each device gets cores near its device: those of the device's NUMA node, if the nodes with devices have
// all cores, or else those of its socket. Without devices, ranks are spread evenly over the sockets. Cores that the
// system keeps for itself take no rank. Of the cores of a rank, some may be kept for communication, loading and saving
// (BaGuaLu §4.1): the rank may run on them, but it starts a smaller number of threads that compute.

#include <string>
#include <string_view>
#include <vector>

#include "launch/surroundings.h"

namespace athanor::launch {

struct Core {
  int cpu;     ///< number of its first hardware thread, as the kernel counts
  int socket;  ///< number of its socket, from 0
  int numa;    ///< its NUMA node; 0 if the kernel has none
  bool operator==(const Core&) const = default;
};

struct CpuLayout {
  std::vector<Core> cores = {};  ///< that this process may run on, by socket, NUMA node and number
  int sockets = 1;               ///< with at least one of these cores
  int threads_per_core = 1;
  int all_cores = 0;      ///< the cores of the machine
  std::string from = {};  ///< "/sys/devices/system/cpu"
};

/// Reads the files of the kernel. If they are missing, each processor is a core of one socket.
CpuLayout read_cpu_layout(const Surroundings& here);

/// Reads "0,52-54" into 0, 52, 53, 54. @throws ConfigError that names `from` if it has another form or a number above
/// 65535.
std::vector<int> parse_cpu_list(std::string_view text, const std::string& from);
/// The other direction: 1, 2, 3, 5 → "1-3,5".
std::string cpu_list_text(const std::vector<int>& cpus);

/// What is asked of the division.
struct CoreRequest {
  int ranks = 1;                  ///< number of ranks of the node
  std::vector<int> numa_of_rank;  ///< the NUMA nodes of their devices, in order; empty if they have none
  std::vector<int> excluded;      ///< numbers of processors that take no rank (--exclude-cores)
  int reserved = 0;               ///< cores of each rank that do not compute (--reserve-cores)
};

struct CoreShares {
  std::vector<std::vector<int>> cpus;  ///< processors of each rank, by its number on the node; empty: not bound
  int threads = 1;                     ///< that each rank computes with; 0: not known
  bool is_even = false;  ///< all cores of all sockets in equal blocks, which any launcher can make by itself
  std::string why;       ///< a sentence for the dry run
};

/// @throws ConfigError if `excluded` names no core, or if nothing is left to compute with.
CoreShares divide_cores(const CpuLayout& layout, const CoreRequest& request);

}  // namespace athanor::launch
