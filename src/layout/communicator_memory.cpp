#include "layout/communicator_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

namespace athanor::inline layout {
namespace {

constexpr double kKiB = 1 << 10, kMiB = 1 << 20;

// Returns the value of a variable that NCCL reads, if it is a number above 0.
double nccl_setting(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  const double value = text ? std::strtod(text, nullptr) : 0;
  return value > 0 ? value : otherwise;
}

// How NCCL joins two ranks: the numbers at the top of the header.
struct Nccl {
  double most_channels = nccl_setting("NCCL_MAX_NCHANNELS", 64);
  double most_of_peers = std::min(most_channels, nccl_setting("NCCL_MAX_P2P_NCHANNELS", 64));
  double simple_bytes = nccl_setting("NCCL_BUFFSIZE", 4 * kMiB);

  double channels(bool one_host) const { return std::min<double>(most_channels, one_host ? 24 : 16); }
  double channels_of_peer(bool one_host) const { return std::min<double>(most_of_peers, one_host ? 32 : 2); }
  // A connection to a rank and one from it.
  double pair_bytes() const {
    const double received = 512 * kKiB + 4800 * kKiB + simple_bytes + 4 * kKiB;  // the last: flags and counters
    return (std::ceil(received / (2 * kMiB)) + 1) * 2 * kMiB;
  }
  // The buffers that messages to other hosts share, for both directions.
  double network_bytes() const { return 2 * 16 * 128 * kKiB * std::min<double>(most_of_peers, 16); }
};

// What a rank does over a group in a step.
struct Use {
  bool collectives = false, all_to_all = false;
  std::set<int> peers;  // those that messages go to, by index in the group
};

std::map<GroupKind, Use> uses_of(const std::vector<RankTraffic>& sent) {
  std::map<GroupKind, Use> uses;
  for (const RankTraffic& line : sent) {
    Use& use = uses[line.group];
    if (line.collective == Collective::kSend) {
      use.peers.insert(line.peer);
    } else if (line.collective == Collective::kAllToAll) {
      use.all_to_all = true;
    } else {
      use.collectives = true;
    }
  }
  return uses;
}

}  // namespace

std::vector<OpenedGroup> opened_groups(const Layout& layout, int rank, const std::vector<RankTraffic>& sent,
                                       const std::vector<int>& hosts) {
  const Nccl nccl;
  const auto host_of = [&](int r) { return hosts.empty() ? 0 : hosts.at(static_cast<size_t>(r)); };
  std::vector<OpenedGroup> opened;
  for (const auto& [kind, use] : uses_of(sent)) {
    const std::vector<int> ranks = layout.group_of(kind, rank);
    if (ranks.size() < 2) continue;
    const bool one_host = std::ranges::all_of(ranks, [&](int r) { return host_of(r) == host_of(rank); });
    OpenedGroup group{kind, static_cast<int>(ranks.size()), 0, 0};
    if (use.collectives) group.bytes += nccl.channels(one_host) * (ranks.size() > 2 ? 2 : 1) * nccl.pair_bytes();
    bool elsewhere = false;
    const auto add_peer = [&](int peer) {
      if (peer == rank) return;
      if (host_of(peer) == host_of(rank)) group.bytes += nccl.channels_of_peer(one_host) * nccl.pair_bytes();
      elsewhere |= host_of(peer) != host_of(rank);
    };
    if (use.all_to_all) std::ranges::for_each(ranks, add_peer);
    for (const int index : use.peers) add_peer(ranks[static_cast<size_t>(index)]);
    if (elsewhere) group.bytes += nccl.network_bytes();
    group.communicators = (use.collectives || use.all_to_all ? 1 : 0) + (use.peers.empty() ? 0 : 2);
    opened.push_back(group);
  }
  return opened;
}

std::vector<int> planned_hosts(const TopologyConfig& topology, int world_size) {
  if (topology.ranks_per_node == 0) return {};
  std::vector<int> hosts;
  for (int rank = 0; rank < world_size; ++rank) hosts.push_back(static_cast<int>(rank / topology.ranks_per_node));
  return hosts;
}

}  // namespace athanor::inline layout
