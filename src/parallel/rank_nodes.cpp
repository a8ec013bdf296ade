#include "parallel/rank_nodes.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "comm/wire_world.h"

namespace athanor::inline parallel {

RankNodes::RankNodes(const std::vector<std::string>& hosts, int ranks_per_node) {
  std::map<int, int> numbers;  // nodes_of may leave numbers out
  for (const int node : comm::nodes_of(hosts, ranks_per_node))
    node_of_.push_back(numbers.try_emplace(node, static_cast<int>(numbers.size())).first->second);
  ranks_.resize(numbers.size());
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    ranks_[static_cast<size_t>(node_of_[rank])].push_back(static_cast<int>(rank));
  std::map<std::string, int> nodes_of_host, named;
  const auto host_of = [&](const std::vector<int>& ranks) { return hosts[static_cast<size_t>(ranks.front())]; };
  for (const auto& ranks : ranks_) ++nodes_of_host[host_of(ranks)];
  for (const auto& ranks : ranks_) {
    const std::string host = host_of(ranks);
    names_.push_back(nodes_of_host[host] == 1 ? host : fmt::format("{}-{}", host, named[host]++));
  }
}

int RankNodes::partner_rank(int rank) const {
  const int node = node_of(rank), partner = partner_of(node);
  if (partner < 0) return -1;
  const auto& own = ranks_of(node);
  const auto& there = ranks_of(partner);
  const auto index = static_cast<size_t>(std::ranges::find(own, rank) - own.begin());
  return there[index % there.size()];
}

std::vector<int> RankNodes::sources_of(int rank) const {
  std::vector<int> sources;
  const int before = (node_of(rank) + size() - 1) % size();
  for (const int each : ranks_of(before))
    if (partner_rank(each) == rank) sources.push_back(each);
  return sources;
}

}  // namespace athanor::inline parallel
