#include "comm/world.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/launched.h"
#include "base/process.h"
#include "comm/device_backend.h"
#include "comm/fake/fake_backend.h"
#include "comm/store_meeting.h"
#include "comm/wire_world.h"
#include "wire/mpi_plugin.h"
#include "wire/tcp_wire.h"

namespace athanor::comm {

namespace {

/// One process, or one rank of a world without peers.
class AloneWorld : public World {
 public:
  AloneWorld(const WorldOptions& options, int rank, int size) : options_(options), rank_(rank), size_(size) {
    hosts_.assign(static_cast<size_t>(size), host_name());
    nodes_ = nodes_of(hosts_, options.ranks_per_node);
    supernodes_ = supernodes_of(hosts_, options.ranks_per_node, options.nodes_per_supernode);
    std::vector<int> everyone;
    for (int r = 0; r < size; ++r) everyone.push_back(r);
    all_ = group_of(everyone, "world");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  const std::vector<int>& supernodes() const override { return supernodes_; }
  const std::string& network() const override { return network_; }
  Communicator& all() override { return *all_; }
  std::unique_ptr<Communicator> make_group(const std::vector<std::vector<int>>& partition, const std::string& name,
                                           c10::Device device, SumTerms tree_sums) override {
    const std::vector<int> ranks = group_with(rank_, size_, partition);
    if (device.is_cpu() || ranks.size() == 1) return group_of(ranks, name);
    return device_group_of(ranks, name, device, tree_sums);
  }
  [[noreturn]] void abort(int exit_code) override { _exit(exit_code); }

 private:
  std::unique_ptr<Communicator> group_of(const std::vector<int>& ranks, const std::string& name) {
    const int index = index_in(ranks, rank_), size = static_cast<int>(ranks.size());
    c10::intrusive_ptr<c10d::Backend> backend;
    if (size > 1) backend = c10::make_intrusive<FakeBackend>(index, size);
    return std::make_unique<Communicator>(options_of(ranks, name), std::move(backend), index);
  }

  // A rank without peers has such groups in a played step.
  std::unique_ptr<Communicator> device_group_of(const std::vector<int>& ranks, const std::string& name,
                                                c10::Device device, SumTerms tree_sums) {
    GroupOptions options = options_of(ranks, name);
    options.device = device.str();
    const int index = index_in(ranks, rank_), size = static_cast<int>(ranks.size());
    const auto open = [=](Lane lane) -> c10::intrusive_ptr<c10d::Backend> {
      c10::intrusive_ptr<c10d::Backend> backend = c10::make_intrusive<FakeBackend>(index, size);
      return tree_sums && lane == Lane::kCollectives ? with_tree_sums(std::move(backend), device, tree_sums) : backend;
    };
    return std::make_unique<Communicator>(std::move(options), open, index, group_of(ranks, name));
  }

  GroupOptions options_of(const std::vector<int>& ranks, const std::string& name) const {
    GroupOptions options;
    options.name = name;
    options.world_ranks = ranks;
    options.timeout = options_.timeout;
    for (int r : ranks) {
      options.hosts.push_back(hosts_[static_cast<size_t>(r)]);
      options.supernode.push_back(supernodes_[static_cast<size_t>(r)]);
    }
    options.shape = shape_of(ranks, nodes_);
    return options;
  }

  WorldOptions options_;
  int rank_, size_;
  std::vector<std::string> hosts_;
  std::vector<int> nodes_, supernodes_;
  std::string network_;
  std::unique_ptr<Communicator> all_;
};

std::unique_ptr<Wire> open_tcp_wire_of(const Launched& me, const WorldOptions& options) {
  // Hosts start late, and a rank may read a large program from a busy file system.
  const auto patience = std::max<std::chrono::milliseconds>(options.timeout, std::chrono::minutes(1));
  const MasterAddress master = master_address().value();
  TcpWireOptions wire;
  wire.rank = me.rank;
  wire.size = me.size;
  wire.master = master.host;
  wire.host = host_name();
  wire.patience = patience;
  return open_tcp_wire(open_store_meeting(master, me.rank, patience), std::move(wire));
}

}  // namespace

std::unique_ptr<World> World::open(const WorldOptions& options) {
  if (options.fake_size > 0) {
    if (options.fake_rank < 0 || options.fake_rank >= options.fake_size) {
      fail<ConfigError>("rank {} is not in a world of {} ranks", options.fake_rank, options.fake_size);
    }
    return std::make_unique<AloneWorld>(options, options.fake_rank, options.fake_size);
  }
  refuse_unseen_launcher();
  const Launched me = launched();
  if (me.size == 1) return std::make_unique<AloneWorld>(options, 0, 1);
  if (me.launcher == "torchrun") return std::make_unique<WireWorld>(open_tcp_wire_of(me, options), options);
  auto world = std::make_unique<WireWorld>(open_mpi_wire(me.launcher), options);
  // Processes that do not find each other are worlds of one rank each, and each would train alone.
  if (world->size() != me.size || world->rank() != me.rank) {
    fail<ConfigError>(
        "{} started rank {} of {}, but its library opened rank {} of {}: mpirun and the MPI that athanor's plugin is "
        "built with are of different installations; start it with the mpirun of that one",
        me.launcher, me.rank, me.size, world->rank(), world->size());
  }
  return world;
}

}  // namespace athanor::comm
