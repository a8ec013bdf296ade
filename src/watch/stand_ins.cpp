#include "watch/stand_ins.h"

namespace athanor::inline watch {
namespace {

int on_ring(int place, int size) { return (place % size + size) % size; }

int shifted(const Layout& layout, const StandIns& stand_ins, int rank, int shift) {
  if (stand_ins.what == StandIns::TakesOver::kPlace) return on_ring(rank + shift, layout.world_size());
  return layout.group_of(GroupKind::kData,
                         rank)[static_cast<size_t>(on_ring(layout.data_rank(rank) + shift, layout.data()))];
}

// True if each data rank has the experts of the one whose sequences it takes over.
bool keeps_experts(const Layout& layout, const std::vector<int>& data_ranks, int shift) {
  const int size = layout.data();
  for (int d = 0; d < size; ++d) {
    const auto expert = [&](int at) {
      return layout.coordinate(data_ranks[static_cast<size_t>(at % size)], Axis::kExpert);
    };
    if (expert(d) != expert(d + shift)) return false;
  }
  return true;
}

}  // namespace

int StandIns::stand_in_for(const Layout& layout, int rank) const { return shifted(layout, *this, rank, shift); }

int StandIns::replaced_by(const Layout& layout, int rank) const { return shifted(layout, *this, rank, -shift); }

std::optional<StandIns> choose_stand_ins(const Layout& layout, const std::vector<int>& node_of_rank, int rank) {
  const auto node_of = [&](int each) { return node_of_rank[static_cast<size_t>(each)]; };
  const std::vector<int> data_ranks = layout.group_of(GroupKind::kData, rank);
  // A balance group is made of the sequences of consecutive data ranks, which have to stay together.
  for (int shift = layout.balance_ranks(); shift < layout.data(); shift += layout.balance_ranks()) {
    const int stand_in = data_ranks[static_cast<size_t>(on_ring(layout.data_rank(rank) + shift, layout.data()))];
    if (node_of(stand_in) != node_of(rank) && keeps_experts(layout, data_ranks, shift))
      return StandIns{StandIns::TakesOver::kSequences, shift};
  }
  for (int shift = 1; shift < layout.world_size(); ++shift) {
    if (node_of(on_ring(rank + shift, layout.world_size())) != node_of(rank))
      return StandIns{StandIns::TakesOver::kPlace, shift};
  }
  return std::nullopt;
}

}  // namespace athanor::inline watch
