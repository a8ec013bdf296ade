#include "comm/renumbered_world.h"

#include <cstdlib>
#include <numeric>

namespace athanor::comm {

RenumberedWorld::RenumberedWorld(World& base, int shift)
    : base_(base), shift_((shift % base.size() + base.size()) % base.size()) {
  for (int rank = 0; rank < size(); ++rank) {
    const auto at = static_cast<size_t>(base_rank(rank));
    hosts_.push_back(base.hosts()[at]);
    supernodes_.push_back(base.supernodes()[at]);
  }
  std::vector<int> everyone(static_cast<size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  all_ = make_group({everyone}, "world");
}

void RenumberedWorld::abort(int exit_code) {
  base_.abort(exit_code);
  std::abort();  // the compiler does not know that the virtual function never returns
}

std::unique_ptr<Communicator> RenumberedWorld::make_group(const std::vector<std::vector<int>>& partition,
                                                          const std::string& name, c10::Device device,
                                                          SumTerms tree_sums) {
  std::vector<std::vector<int>> in_base = partition;
  for (auto& group : in_base) {
    for (int& rank : group) rank = base_rank(rank);
  }
  return base_.make_group(in_base, name, device, tree_sums);
}

}  // namespace athanor::comm
