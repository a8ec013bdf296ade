#pragma once
// The communicators of a layout. All are made here, so there is none for a group that the layout does not define.

#include <map>
#include <memory>

#include "comm/world.h"
#include "layout/layout.h"

namespace athanor::inline parallel {

class Mesh {
 public:
  /// Collective over the world, which must have the layout's size and outlive the mesh. The groups are for tensors of
  /// the host.
  Mesh(Layout layout, comm::World& world);
  /// Makes groups for tensors of `device`, which is this rank's; not kWorld, over which the ranks agree on what the
  /// hosts know. Sums are the library's, or have the tree's order (parallelism.device_sums). Collective. Does nothing
  /// for the CPU, and for one rank, whose groups send nothing.
  void use(at::Device device, DeviceSums sums = DeviceSums::kLibrary);

  const Layout& layout() const { return layout_; }
  /// Replaces the layout by one with the same groups: a training phase may have another batch.
  void enter(Layout layout);
  comm::World& world() const { return world_; }
  int rank() const { return world_.rank(); }
  int data_rank() const { return layout_.data_rank(rank()); }
  /// True for the first rank of the world, which reports, and writes files that are written once.
  bool is_first() const { return rank() == 0; }
  /// Returns this rank's group of a kind; it may have one rank. Tensors are those of the model's device, in kWorld
  /// those of the host.
  comm::Communicator& group(GroupKind kind) const { return *groups().at(kind); }
  /// Returns the same ranks' group for tensors of the host.
  comm::Communicator& host_group(GroupKind kind) const { return *host_groups_.at(kind); }
  const std::map<GroupKind, std::shared_ptr<comm::Communicator>>& groups() const {
    return device_groups_.empty() ? host_groups_ : device_groups_;
  }

  /// Whether the ranks' devices have groups of their own (use).
  bool has_device_groups() const { return !device_groups_.empty(); }

  /// Returns the seconds that this process has waited for collectives of these groups so far.
  double waited_s() const;

 private:
  Layout layout_;
  comm::World& world_;
  std::map<GroupKind, std::shared_ptr<comm::Communicator>> host_groups_, device_groups_;
};

/// A world and mesh of this process alone, even if a launcher started it together with others.
struct OneRank {
  /// @throws ConfigError if the degrees do not fit one rank.
  explicit OneRank(const RunConfig& config);
  std::unique_ptr<comm::World> world;
  Mesh mesh;
};

}  // namespace athanor::inline parallel
