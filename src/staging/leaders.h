#pragma once
// Which ranks take part: of the ranks that share a target folder, the first one. With one rank on each node these are
// all; a bit for each rank tells it, 1.5 KB for 12,288 ranks.

#include <cstdint>
#include <string>
#include <vector>

#include "staging/tree_messages.h"

namespace athanor::staging {

class Leaders {
 public:
  /// Collective over the wire. @param place  host and target folder of this rank: ranks with equal ones share it.
  static Leaders find(comm::Wire& wire, const std::string& place);
  explicit Leaders(std::vector<uint64_t> bits);

  int count() const { return before_.back(); }
  bool has(int rank) const { return (bits_[static_cast<size_t>(rank) / 64] >> (rank % 64) & 1) != 0; }
  int node_of(int rank) const;  ///< the number of a leader among the leaders
  int rank_of(int node) const;

 private:
  std::vector<uint64_t> bits_;
  std::vector<int> before_;  ///< leaders before each word, and behind the last one all
};

}  // namespace athanor::staging
