#include "comm/group_backend.h"

#include "base/error.h"

namespace athanor::comm {
namespace {

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

}  // namespace

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

}  // namespace athanor::comm
