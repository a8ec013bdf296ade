#include "parallel/mesh.h"

#include "base/error.h"
#include "ops/device/sum_terms.h"

namespace athanor::inline parallel {

Mesh::Mesh(Layout layout, comm::World& world) : layout_(std::move(layout)), world_(world) {
  for (const GroupKind kind : kGroupKinds)
    host_groups_[kind] = world.make_group(layout_.groups(kind), group_name(kind));
}

void Mesh::use(at::Device device, DeviceSums sums) {
  if (!world_.has_peers_on(device)) return;
  const comm::SumTerms tree_sums = sums == DeviceSums::kTree ? &ops::device::sum_terms : nullptr;
  for (const GroupKind kind : kGroupKinds)
    device_groups_[kind] = kind == GroupKind::kWorld
                               ? host_groups_[kind]
                               : world_.make_group(layout_.groups(kind), group_name(kind), device, tree_sums);
}

void Mesh::enter(Layout layout) {
  for (const GroupKind kind : kGroupKinds)
    ATHANOR_ASSERT(layout.group_size(kind, rank()) == layout_.group_size(kind, rank()));
  layout_ = std::move(layout);
}

double Mesh::waited_s() const {
  double total = 0;
  for (const auto& [kind, ranks] : groups()) total += ranks->traffic().waited_s;
  return total;
}

namespace {

std::unique_ptr<comm::World> world_of_one() {
  comm::WorldOptions options;
  options.fake_size = 1;
  return comm::World::open(options);
}

}  // namespace

OneRank::OneRank(const RunConfig& config) : world(world_of_one()), mesh(Layout(config, 1), *world) {}

}  // namespace athanor::inline parallel
