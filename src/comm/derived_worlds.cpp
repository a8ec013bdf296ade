#include "comm/derived_worlds.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace athanor::comm {
namespace {

// Presents a communicator as a backend, so that something can be put between it and another communicator, whatever
// transport the first uses.
class GroupBackend : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  explicit GroupBackend(std::shared_ptr<Communicator> group)
      : Backend(group->rank(), group->size()), group_(std::move(group)) {}

  const std::string getBackendName() const override { return "athanor_group"; }
  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override;
  Work _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override;
  Work alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_rows, std::vector<int64_t>& in_rows,
                     const c10d::AllToAllOptions& options) override;
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  Work send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  Work recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;

 private:
  std::shared_ptr<Communicator> group_;
};

// wait() throws the error, with the group's message.
class PendingWork : public c10d::Work {
 public:
  explicit PendingWork(Pending pending) : pending_(std::move(pending)) {}
  bool isCompleted() override { return pending_.done(); }
  bool isSuccess() const override { return pending_.done(); }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    pending_.wait();
    return true;
  }

 private:
  Pending pending_;
};

GroupBackend::Work work_of(Pending pending) { return c10::make_intrusive<PendingWork>(std::move(pending)); }

Reduction reduction_of(const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM: return Reduction::kSum;
    case c10d::ReduceOp::AVG: return Reduction::kMean;
    case c10d::ReduceOp::MAX: return Reduction::kMax;
    default: fail<Error>("bug: a communicator asks for no such reduction");
  }
}

GroupBackend::Work GroupBackend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  return work_of(group_->all_reduce(tensors.at(0), reduction_of(options.reduceOp)));
}

GroupBackend::Work GroupBackend::_reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                                                      const c10d::ReduceScatterOptions& options) {
  return work_of(group_->reduce_scatter(out, in, reduction_of(options.reduceOp)));
}

GroupBackend::Work GroupBackend::_allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions&) {
  return work_of(group_->all_gather(out, in));
}

GroupBackend::Work GroupBackend::alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_rows,
                                               std::vector<int64_t>& in_rows, const c10d::AllToAllOptions&) {
  if (out_rows.empty()) return work_of(group_->all_to_all(out, in));
  return work_of(group_->all_to_all(out, in, out_rows, in_rows));
}

GroupBackend::Work GroupBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  return work_of(group_->broadcast(tensors.at(0), static_cast<int>(options.rootRank)));
}

GroupBackend::Work GroupBackend::send(std::vector<at::Tensor>& tensors, int to, int /*tag*/) {
  return work_of(group_->send(tensors.at(0), to));
}

GroupBackend::Work GroupBackend::recv(std::vector<at::Tensor>& tensors, int from, int /*tag*/) {
  return work_of(group_->receive(tensors.at(0), from));
}

GroupBackend::Work GroupBackend::barrier(const c10d::BarrierOptions&) {
  group_->barrier();
  return work_of({});
}

class DecoratedWorld : public World {
 public:
  DecoratedWorld(World& world, WrapGroup wrap) : world_(world), wrap_(std::move(wrap)) {}

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  const std::vector<std::string>& hosts() const override { return world_.hosts(); }
  const std::vector<int>& supernodes() const override { return world_.supernodes(); }
  const std::string& network() const override { return world_.network(); }
  Communicator& all() override { return world_.all(); }
  void note_work(int64_t amount) override { world_.note_work(amount); }
  [[noreturn]] void abort(int exit_code) override {
    world_.abort(exit_code);
    std::abort();  // the compiler does not know that the virtual function never returns
  }

  std::unique_ptr<Communicator> make_group(const std::vector<std::vector<int>>& partition, const std::string& name,
                                           at::Device device, SumTerms tree_sums) override {
    std::shared_ptr<Communicator> group = world_.make_group(partition, name, device, tree_sums);
    GroupOptions options = group->options();
    if (!device.is_cpu()) options.check = false;  // the group itself checks its calls, over one of the hosts
    const int rank = group->rank();
    c10::intrusive_ptr<c10d::Backend> backend;
    if (group->size() > 1) backend = wrap_(options, c10::make_intrusive<GroupBackend>(std::move(group)));
    return std::make_unique<Communicator>(options, std::move(backend), rank);
  }

 private:
  World& world_;
  WrapGroup wrap_;
};

}  // namespace

std::unique_ptr<World> decorated_world(World& world, WrapGroup wrap) {
  return std::make_unique<DecoratedWorld>(world, std::move(wrap));
}

RenumberedWorld::RenumberedWorld(World& base, int shift)
    : base_(base), shift_((shift % base.size() + base.size()) % base.size()) {
  for (int rank = 0; rank < size(); ++rank) {
    const auto in_base = static_cast<size_t>(base_rank(rank));
    hosts_.push_back(base.hosts()[in_base]);
    supernodes_.push_back(base.supernodes()[in_base]);
  }
  std::vector<int> everyone(static_cast<size_t>(size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  all_ = make_group({everyone}, "world");
}

void RenumberedWorld::abort(int exit_code) {
  base_.abort(exit_code);
  std::abort();  // the compiler does not know that the virtual function never returns
}

std::unique_ptr<Communicator> RenumberedWorld::make_group(const std::vector<std::vector<int>>& partition,
                                                          const std::string& name, c10::Device device,
                                                          SumTerms tree_sums) {
  std::vector<std::vector<int>> in_base = partition;
  for (auto& group : in_base) {
    for (int& rank : group) rank = base_rank(rank);
  }
  return base_.make_group(in_base, name, device, tree_sums);
}

}  // namespace athanor::comm
