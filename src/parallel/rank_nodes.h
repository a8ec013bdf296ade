#pragma once
// How the ranks of a run lie on nodes, and which node keeps copies for which (checkpoint/local_store.h).

#include <string>
#include <vector>

namespace athanor::inline parallel {

class RankNodes {
 public:
  /// @param hosts           of each rank.
  /// @param ranks_per_node  as topology.ranks_per_node: 0 takes the ranks of one host as a node.
  RankNodes(const std::vector<std::string>& hosts, int ranks_per_node);

  int size() const { return static_cast<int>(ranks_.size()); }  ///< number of nodes
  int num_ranks() const { return static_cast<int>(node_of_.size()); }
  const std::vector<int>& node_of_ranks() const { return node_of_; }
  int node_of(int rank) const { return node_of_[static_cast<size_t>(rank)]; }
  const std::vector<int>& ranks_of(int node) const { return ranks_[static_cast<size_t>(node)]; }
  /// Returns the rank that makes and removes folders on a node.
  int leader_of(int node) const { return ranks_of(node).front(); }
  bool is_leader(int rank) const { return leader_of(node_of(rank)) == rank; }
  /// Returns the name of a node: its host's, with a number if the host has several.
  const std::string& name_of(int node) const { return names_[static_cast<size_t>(node)]; }

  /// Returns the node that keeps copies for `node`: the next one; -1 if there is only one node.
  int partner_of(int node) const { return size() == 1 ? -1 : (node + 1) % size(); }
  /// Returns the rank of the partner node that keeps copies for `rank`; -1 if there is only one node.
  int partner_rank(int rank) const;
  /// Returns the ranks for which `rank` keeps copies.
  std::vector<int> sources_of(int rank) const;

 private:
  std::vector<int> node_of_;
  std::vector<std::vector<int>> ranks_;
  std::vector<std::string> names_;
};

}  // namespace athanor::inline parallel
