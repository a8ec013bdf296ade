#include "parallel/mesh.h"

namespace athanor {

Mesh::Mesh(Layout layout, comm::World& world) : layout_(std::move(layout)), world_(world) {
  for (const GroupKind kind :
       {GroupKind::kWorld, GroupKind::kData, GroupKind::kExpert, GroupKind::kExpertData, GroupKind::kShard,
        GroupKind::kReplicate, GroupKind::kExpertShard, GroupKind::kExpertReplicate, GroupKind::kBalance,
        GroupKind::kTensor, GroupKind::kPipeline}) {
    groups_[kind] = world.make_group(layout_.groups(kind), group_name(kind));
  }
}

}  // namespace athanor
