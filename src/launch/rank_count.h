#pragma once
// How many ranks a job has, and how many of them are on each host.

#include <optional>
#include <string>
#include <vector>

#include "launch/allocation.h"

namespace athanor::launch {

/// The wishes of the user.
struct RankRequest {
  std::optional<int> ranks = {}, per_node = {};
  bool has_nodes = false;  ///< the hosts of the allocation are as many as the user named with --nodes
};

/// What a node offers if the user has no wish: a rank for each device, or for each socket.
struct NodeOffer {
  int ranks = 1;
  std::string what;  ///< "one for each of 12 devices"
};

struct RankCount {
  std::vector<int> of_host;  ///< number of ranks of each host that has some, in the order of the allocation
  std::string from;          ///< a sentence for the dry run

  int total() const;
  int most() const;  ///< the ranks of the host that has most
  /// True if all hosts have the same number, except the last one, which may have fewer.
  bool is_regular() const;
};

/// Slots that the scheduler or the host file names come before what a node offers. Hosts are filled one after the
/// other. @param offer  nothing if the nodes are not known, because this machine is none of them.
/// @throws ConfigError if numbers contradict each other, if there are more ranks than slots, or if nothing tells the
///         number.
RankCount count_ranks(const RankRequest& request, const Allocation& allocation, const std::optional<NodeOffer>& offer);

}  // namespace athanor::launch
