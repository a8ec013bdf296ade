#include "comm/device_backend.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>

#include "base/error.h"
#include "base/launched.h"
#include "comm/device/open.h"

namespace athanor::comm {
namespace {

c10::intrusive_ptr<c10d::Backend> open_backend(const DeviceGroupStart& start) {
  switch (start.device.type()) {
    case c10::DeviceType::CUDA: return open_nccl(start);
    case c10::DeviceType::XPU: return open_xccl(start);
    default:
      fail<CommError>("there are no collectives between devices of type {}",
                      c10::DeviceTypeName(start.device.type(), /*lower_case=*/true));
  }
}

}  // namespace

bool have_device_backend(c10::DeviceType type) {
  return (type == c10::DeviceType::CUDA && have_nccl()) || (type == c10::DeviceType::XPU && have_xccl());
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

DeviceGroups::DeviceGroups(World& world, c10::Device device) : device_(device) {
  if (world.size() == 1) return;
  // its error names what is missing
  if (!have_device_backend(device.type())) open_backend({nullptr, 0, 1, {}, device});
  store_ = open_store(world, world.all().options().timeout);
}

DeviceGroups::~DeviceGroups() = default;

std::unique_ptr<Communicator> DeviceGroups::make_group(const Communicator& host_group) {
  const GroupOptions& options = host_group.options();
  c10::intrusive_ptr<c10d::Backend> backend;
  if (host_group.size() > 1) {
    // Groups of one partition share a number; their first member distinguishes them.
    const std::string prefix = fmt::format("{}.{}.{}/", num_groups_, options.name, options.world_ranks[0]);
    auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, store_);
    backend = open_backend({std::move(store), host_group.rank(), host_group.size(), options.timeout, device_});
  }
  ++num_groups_;
  return std::make_unique<Communicator>(options, std::move(backend), host_group.rank());
}

int index_on_host(const World& world) {
  const auto& hosts = world.hosts();
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + world.rank(), world.host()));
}

}  // namespace athanor::comm
