#include "comm/device_backend.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/launched.h"
#include "comm/backend_decorator.h"
#include "comm/communicator.h"
#include "comm/device/open.h"
#include "wire/index_tree.h"
#include "wire/tree_sum.h"

namespace athanor::comm {
namespace {

// Sums along the tree (communicator.h) between devices, whose libraries choose the order themselves: each part of a
// tensor is sent to the rank that owns it, which adds the terms in the tree's order and rounds once. So the bits of a
// sum depend on its terms alone: neither on the network nor on the algorithm that the library chooses.
//
// A reduce-scatter sends the bytes that a ring sends, b·(n−1)/n, in n−1 messages of one all-to-all. But none of them
// is a partial sum, so that more bytes leave a node: with g ranks on each, up to g times as many. A call needs scratch
// memory of the size of its input.

using at::Tensor;
using Step = c10::intrusive_ptr<c10d::Work>;

// Collectives and additions that follow each other on one stream.
class Steps : public c10d::Work {
 public:
  explicit Steps(c10::Device device) : device_(device), end_(device.type()) {}

  // Lets the current stream wait for `step`.
  void add(const Step& step) {
    step->wait();
    steps_.push_back(step);
  }
  void end_on(const c10::Stream& stream) { end_.record(stream); }

  bool isCompleted() override { return end_.query(); }
  bool isSuccess() const override { return true; }
  std::exception_ptr exception() const override {
    for (const auto& step : steps_)
      if (const auto exception = step->exception()) return exception;
    return nullptr;
  }
  void synchronize() override { end_.block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_)); }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }

 private:
  c10::Device device_;
  c10::Event end_;
  std::vector<Step> steps_;
};

class TreeSums : public BackendDecorator {
 public:
  TreeSums(Inner inner, c10::Device device, SumTerms sum)
      : BackendDecorator(std::move(inner)), device_(device),
        stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/true)),
        sum_(sum) {}

  Work allreduce(std::vector<Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    const Tensor& x = tensors.at(0);
    if (!is_ours(x, options.reduceOp)) return BackendDecorator::allreduce(tensors, options);
    const bool is_mean = options.reduceOp == c10d::ReduceOp::AVG;
    return run({x}, [&](Steps& steps) {
      const Tensor flat = x.view({-1});
      const auto bytes_of_all = static_cast<int64_t>(flat.nbytes()) * getSize();
      return bytes_of_all <= kSmallGatherBytes ? sum_gathered(steps, flat, is_mean)
                                               : sum_in_parts(steps, flat, is_mean);
    });
  }

  Work _reduce_scatter_base(Tensor& out, Tensor& in, const c10d::ReduceScatterOptions& options) override {
    if (!is_ours(in, options.reduceOp)) return BackendDecorator::_reduce_scatter_base(out, in, options);
    const bool is_mean = options.reduceOp == c10d::ReduceOp::AVG;
    return run({out, in}, [&](Steps& steps) { scatter_sums(steps, out.view({-1}), in.view({-1}), is_mean); });
  }

 private:
  // Sums of integers and maxima have the same bits in every order.
  static bool is_ours(const Tensor& x, const c10d::ReduceOp& op) {
    return x.numel() > 0 && x.is_floating_point() && (op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG);
  }

  // The stream takes over from the caller's, and holds `tensors` until it is done.
  template <class Queue>
  Work run(const std::vector<Tensor>& tensors, Queue queue) {
    const auto callers = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    c10::Event begin(device_.type());
    begin.record(callers);
    begin.block(stream_);
    for (const Tensor& each : tensors) each.record_stream(stream_);
    auto steps = c10::make_intrusive<Steps>(device_);
    const c10::StreamGuard on_stream(stream_);
    queue(*steps);
    steps->end_on(stream_);
    return steps;
  }

  void scatter_sums(Steps& steps, Tensor out, Tensor in, bool is_mean) {
    Tensor terms = at::empty_like(in);
    std::vector<int64_t> even_out, even_in;
    steps.add(inner().alltoall_base(terms, in, even_out, even_in, {}));
    add_terms(terms.view({getSize(), 1, -1}), out.view({1, -1}), is_mean);
  }

  void sum_in_parts(Steps& steps, const Tensor& x, bool is_mean) {
    const int64_t n = getSize(), part = (x.numel() + n - 1) / n;
    Tensor all = x;
    if (x.numel() < n * part) {
      all = at::zeros({n * part}, x.options());
      all.narrow(0, 0, x.numel()).copy_(x);
    }
    Tensor own = at::empty({part}, x.options());
    scatter_sums(steps, own, all, is_mean);
    steps.add(inner()._allgather_base(all, own, {}));
    if (!all.is_same(x)) x.copy_(all.narrow(0, 0, x.numel()));
  }

  void sum_gathered(Steps& steps, Tensor x, bool is_mean) {
    Tensor terms = at::empty({getSize() * x.numel()}, x.options());
    steps.add(inner()._allgather_base(terms, x, {}));
    add_terms(terms.view({getSize(), 1, -1}), x.view({1, -1}), is_mean);
  }

  // A mean multiplies as tree_sum does (wire/tree_sum.h): before the additions, and once after them.
  void add_terms(const Tensor& terms, const Tensor& out, bool is_mean) const {
    if (!is_mean) return sum_(terms, out);
    const Scale scale = mean_scale(getSize());
    const Tensor wide = (terms.element_size() < 4 ? terms.to(at::kFloat) : terms) * scale.first;
    const Tensor sum = at::empty(out.sizes(), wide.options());
    sum_(wide, sum);
    out.copy_(sum.mul_(scale.last));
  }

  c10::Device device_;
  c10::Stream stream_;
  SumTerms sum_;
};

c10::intrusive_ptr<c10d::Backend> open_backend(const DeviceGroupStart& start) {
  switch (start.device.type()) {
    case c10::DeviceType::CUDA: return open_nccl(start);
    case c10::DeviceType::XPU: return open_xccl(start);
    case c10::DeviceType::PrivateUse1:
      if (guarded_groups()) return guarded_groups()(start);
      [[fallthrough]];
    default:
      fail<CommError>("there are no collectives between devices of type {}",
                      c10::DeviceTypeName(start.device.type(), /*lower_case=*/true));
  }
}

OpenGuarded the_guarded_groups = nullptr;

}  // namespace

c10::intrusive_ptr<c10d::Backend> with_tree_sums(c10::intrusive_ptr<c10d::Backend> inner, c10::Device device,
                                                 SumTerms sum) {
  return c10::make_intrusive<TreeSums>(std::move(inner), device, sum);
}

OpenGuarded guarded_groups() { return the_guarded_groups; }
void set_guarded_groups(OpenGuarded open) { the_guarded_groups = open; }

bool have_device_backend(c10::DeviceType type) {
  return type == c10::DeviceType::CPU || (type == c10::DeviceType::PrivateUse1 && guarded_groups()) ||
         (type == c10::DeviceType::CUDA && have_nccl()) || (type == c10::DeviceType::XPU && have_xccl());
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
  if (device.is_cpu() || !have_device_backend(device.type())) open_backend({nullptr, 0, 1, {}, device, nullptr});
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
