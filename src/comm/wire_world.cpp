#include "comm/wire_world.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <unordered_map>

#include "base/error.h"
#include "base/process.h"
#include "comm/short_texts.h"

namespace athanor::comm {

std::vector<int> nodes_of(const std::vector<std::string>& hosts, int ranks_per_node) {
  std::vector<int> nodes;
  std::unordered_map<std::string, int> seen;
  for (size_t r = 0; r < hosts.size(); ++r) {
    nodes.push_back(ranks_per_node > 0 ? static_cast<int>(r) / ranks_per_node
                                       : seen.try_emplace(hosts[r], static_cast<int>(seen.size())).first->second);
  }
  return nodes;
}

std::vector<int> supernodes_of(const std::vector<std::string>& hosts, int ranks_per_node, int nodes_per_supernode) {
  auto supernodes = nodes_of(hosts, ranks_per_node);
  for (int& node : supernodes) node = nodes_per_supernode > 0 ? node / nodes_per_supernode : 0;
  return supernodes;
}

NodeShape shape_of(const std::vector<int>& ranks, const std::vector<int>& nodes) {
  std::vector<int> of_members;
  for (const int rank : ranks) of_members.push_back(nodes[static_cast<size_t>(rank)]);
  return find_node_shape(of_members);
}

std::vector<int> group_with(int rank, int world_size, const std::vector<std::vector<int>>& partition) {
  std::vector<int> times(static_cast<size_t>(world_size));
  std::vector<int> own;
  for (const std::vector<int>& group : partition) {
    for (int member : group) {
      if (member < 0 || member >= world_size || times[static_cast<size_t>(member)]++ > 0) {
        fail<Error>("bug: rank {} is twice in a partition of the world, or not in the world of {}", member, world_size);
      }
      if (member == rank) own = group;
    }
  }
  const auto absent = std::find(times.begin(), times.end(), 0);
  if (absent != times.end()) fail<Error>("bug: rank {} is in no group of a partition", absent - times.begin());
  return own;
}

int index_in(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

WireWorld::WireWorld(std::unique_ptr<Wire> wire, const WorldOptions& options)
    : options_(options), pump_(std::make_shared<MessagePump>(std::move(wire))), rank_(pump_->wire().rank()),
      size_(pump_->wire().size()), num_exceptions_(std::uncaught_exceptions()) {
  std::vector<int> everyone;
  for (int r = 0; r < size_; ++r) everyone.push_back(r);
  options_.timeout = std::max<std::chrono::milliseconds>(options.timeout, std::chrono::minutes(1));  // hosts start late
  hosts_ = all_gather_texts(*group_of(everyone, "world", num_groups_++), host_name());
  options_.timeout = options.timeout;
  pump_->name_hosts(hosts_);
  network_ = pump_->wire().library();
  nodes_ = nodes_of(hosts_, options.ranks_per_node);
  supernodes_ = supernodes_of(hosts_, options.ranks_per_node, options.nodes_per_supernode);
  all_ = group_of(everyone, "world", num_groups_++);
}

WireWorld::~WireWorld() {
  device_groups_.reset();
  all_.reset();
  if (std::uncaught_exceptions() > num_exceptions_) return;
  if (!pump_->settle(std::chrono::seconds(2))) return;
  try {
    pump_->close();
  } catch (const std::exception&) {
    // No one is left to be informed; the other ranks notice.
  }
}

std::unique_ptr<Communicator> WireWorld::group_of(const std::vector<int>& ranks, const std::string& name, int64_t id) {
  GroupOptions options;
  options.name = name;
  options.world_ranks = ranks;
  options.timeout = options_.timeout;
  options.check = options_.check;
  options.board = options_.board;
  for (int r : ranks) {
    if (!hosts_.empty()) options.hosts.push_back(hosts_[static_cast<size_t>(r)]);
    if (!supernodes_.empty()) options.supernode.push_back(supernodes_[static_cast<size_t>(r)]);
  }
  if (!nodes_.empty()) options.shape = shape_of(ranks, nodes_);
  const int index = index_in(ranks, rank_);
  c10::intrusive_ptr<c10d::Backend> backend;
  if (ranks.size() > 1) backend = c10::make_intrusive<HostBackend>(pump_, ranks, index, id, name, options.shape);
  return std::make_unique<Communicator>(std::move(options), std::move(backend), index);
}

void WireWorld::abort(int exit_code) {
  pump_->wire().abort(exit_code);
  std::abort();  // the compiler does not know that the virtual function never returns
}

std::unique_ptr<Communicator> WireWorld::make_group(const std::vector<std::vector<int>>& partition,
                                                    const std::string& name, c10::Device device, SumTerms tree_sums) {
  if (!device.is_cpu()) {
    if (!device_groups_) device_groups_ = std::make_unique<DeviceGroups>(*this, device);
    return device_groups_->make_group(partition, name, tree_sums);
  }
  const std::vector<int> own = group_with(rank_, size_, partition);
  // Groups have numbers for their tags, the same on all ranks; ranks that are alone need none.
  const bool alone = partition.size() == static_cast<size_t>(size_);
  return group_of(own, name, alone ? 0 : num_groups_++);
}

}  // namespace athanor::comm
