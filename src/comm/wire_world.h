#pragma once
// A world over a Wire: MPI's, or that of threads in tests.

#include <memory>
#include <string>
#include <vector>

#include "comm/device_backend.h"
#include "comm/host_backend.h"
#include "comm/world.h"

namespace athanor::comm {

class WireWorld : public World {
 public:
  /// Collective over the wire: gathers the hosts' names.
  WireWorld(std::unique_ptr<Wire> wire, const WorldOptions& options);
  /// Ends the job together with all other ranks. If an exception is under way or something has failed, it waits for
  /// nothing, and the launcher learns from this process's end that the job has failed.
  ~WireWorld() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  const std::vector<int>& supernodes() const override { return supernodes_; }
  const std::string& network() const override { return network_; }
  Communicator& all() override { return *all_; }
  std::unique_ptr<Communicator> make_group(const std::vector<std::vector<int>>& partition, const std::string& name,
                                           c10::Device device = c10::kCPU, SumTerms tree_sums = nullptr) override;
  void note_work(int64_t amount) override { pump_->note_work(amount); }
  [[noreturn]] void abort(int exit_code) override;

 private:
  std::unique_ptr<Communicator> group_of(const std::vector<int>& ranks, const std::string& name, int64_t id);

  WorldOptions options_;
  std::shared_ptr<MessagePump> pump_;
  int rank_, size_;
  int num_exceptions_;
  int64_t num_groups_ = 0;  ///< groups that have more than one rank on some rank of the world
  std::vector<std::string> hosts_;
  std::vector<int> nodes_, supernodes_;  ///< by rank, once their hosts are known
  std::string network_;
  std::unique_ptr<Communicator> all_;
  std::unique_ptr<DeviceGroups> device_groups_;
};

/// Returns the node (from 0) of each rank: blocks of ranks_per_node ranks if that is not 0, else ranks that share a
/// host name.
std::vector<int> nodes_of(const std::vector<std::string>& hosts, int ranks_per_node);
/// Returns how the ranks of a group lie on nodes; rank r of the world is on node nodes[r].
NodeShape shape_of(const std::vector<int>& ranks, const std::vector<int>& nodes);
/// Returns the supernode of each rank: 0, 1, … in the order of ranks. See WorldOptions.
std::vector<int> supernodes_of(const std::vector<std::string>& hosts, int ranks_per_node, int nodes_per_supernode);

/// Returns the group of `partition` that `rank` is in. @throws Error unless the partition has each rank of the world
/// once.
std::vector<int> group_with(int rank, int world_size, const std::vector<std::vector<int>>& partition);

/// Returns the index of `rank` in `ranks`, which must contain it.
int index_in(const std::vector<int>& ranks, int rank);

}  // namespace athanor::comm
