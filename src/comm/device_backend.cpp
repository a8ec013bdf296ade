#include "comm/device_backend.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>

#include "base/error.h"
#include "base/launched.h"
#include "comm/device/open.h"
#include "comm/tree_sums.h"

namespace athanor::comm {
namespace {

c10::intrusive_ptr<c10d::Backend> open_backend(const DeviceGroupStart& start) {
  switch (start.device.type()) {
    case c10::DeviceType::CUDA: return open_nccl(start);
    case c10::DeviceType::XPU: return open_xccl(start);
    case c10::DeviceType::PrivateUse1:
      if (played_groups()) return played_groups()(start);
      [[fallthrough]];
    default:
      fail<CommError>("there are no collectives between devices of type {}",
                      c10::DeviceTypeName(start.device.type(), /*lower_case=*/true));
  }
}

OpenPlayed the_played_groups = nullptr;

}  // namespace

OpenPlayed played_groups() { return the_played_groups; }
void set_played_groups(OpenPlayed open) { the_played_groups = open; }

bool have_device_backend(c10::DeviceType type) {
  return (type == c10::DeviceType::PrivateUse1 && played_groups()) || (type == c10::DeviceType::CUDA && have_nccl()) ||
         (type == c10::DeviceType::XPU && have_xccl());
}

c10::intrusive_ptr<c10d::Store> open_store(World& world, std::chrono::milliseconds timeout) {
  const auto& hosts = world.hosts();
  // A single machine may not know its own name.
  const bool one_host = std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host == hosts[0]; });
  const auto master = launched().launcher == "torchrun" ? master_address() : std::nullopt;  // where they met before
  const std::string address = one_host ? "localhost" : master ? master->host : hosts[0];
  c10d::TCPStoreOptions options;
  options.isServer = world.rank() == 0;
  options.port = 0;             // any free port
  options.waitWorkers = false;  // they cannot come before they know the port
  options.timeout = timeout;
  const Tensor port = at::zeros({1}, at::kLong);
  try {
    c10::intrusive_ptr<c10d::TCPStore> store;
    if (options.isServer) {
      store = c10::make_intrusive<c10d::TCPStore>(address, options);
      port.fill_(static_cast<int64_t>(store->getPort()));
    }
    world.all().broadcast(port, 0).wait();
    if (!store) {
      options.port = static_cast<uint16_t>(port.item<int64_t>());
      store = c10::make_intrusive<c10d::TCPStore>(address, options);
    }
    return store;
  } catch (const c10::Error& error) {
    fail<CommError>("the store for device collectives, served by rank 0 on {}, cannot be reached: {}", address,
                    error.what_without_backtrace());
  }
}

DeviceGroups::DeviceGroups(World& world, c10::Device device) : world_(world), device_(device) {
  if (world.size() == 1) return;
  // its error names what is missing
  if (!have_device_backend(device.type())) open_backend({nullptr, 0, 1, {}, device, nullptr});
  if (!device.is_privateuseone()) store_ = open_store(world, world.all().options().timeout);
}

DeviceGroups::~DeviceGroups() = default;

std::unique_ptr<Communicator> DeviceGroups::make_group(const std::vector<std::vector<int>>& partition,
                                                       const std::string& name, SumTerms tree_sums) {
  const std::shared_ptr<Communicator> host = world_.make_group(partition, name);
  // Check mode compares calls over the host's group, while the calls before are still under way.
  const std::shared_ptr<Communicator> carrier =
      device_.is_privateuseone() ? world_.make_group(partition, name) : nullptr;
  GroupOptions options = host->options();
  options.device = device_.str();
  // Groups of one partition share a number; their first member distinguishes them.
  const std::string prefix = fmt::format("{}.{}.{}", num_groups_++, name, options.world_ranks[0]);
  const auto open = [store = store_, device = device_, prefix, carrier, rank = host->rank(), size = host->size(),
                     timeout = options.timeout, tree_sums](Lane lane) {
    c10::intrusive_ptr<c10d::Store> own;
    if (store)
      own = c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}.{}/", prefix, static_cast<int>(lane)), store);
    auto backend = open_backend({std::move(own), rank, size, timeout, device, carrier});
    return tree_sums && lane == Lane::kCollectives ? with_tree_sums(std::move(backend), device, tree_sums) : backend;
  };
  return std::make_unique<Communicator>(options, open, host->rank(), host);
}

int index_on_host(const World& world) {
  const auto& hosts = world.hosts();
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + world.rank(), world.host()));
}

}  // namespace athanor::comm
