#pragma once
// Our collectives on host memory as a c10d::Backend: over a Wire (MPI, or threads in tests), in point-to-point
// messages.
//
// So bytes by peer are exact, pairs without bytes exchange nothing, sums have the tree's bits whatever the network, and
// a timeout knows who has not come. Each collective has a tag of its own, so that those of one group may be under way
// together without mixing.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/progress.h"

namespace athanor::comm {

class HostWork : public c10d::Work {
 public:
  HostWork(std::shared_ptr<Progress> progress, std::shared_ptr<Operation> operation)
      : progress_(std::move(progress)), operation_(std::move(operation)) {}

  bool isCompleted() override { return operation_->done() || operation_->failed(); }
  bool isSuccess() const override { return operation_->done() && !operation_->failed(); }
  void synchronize() override {}
  /// False where the time is over before the collective is; 0: without limit.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  /// What a peer did wrong, once it is over, or nothing; members of the group stand as "{3}".
  std::string error() const { return operation_->failed() ? operation_->error() : ""; }
  /// Members of the group that have not come; to be asked where wait() was in vain.
  std::vector<Progress::Missing> missing() const { return progress_->missing(*operation_); }

 private:
  std::shared_ptr<Progress> progress_;
  std::shared_ptr<Operation> operation_;
};

class HostBackend : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  /// @param ranks     of the members on the wire, at least two.
  /// @param group_id  another one for each group that this process is in, the same on all members.
  HostBackend(std::shared_ptr<Progress> progress, std::vector<int> ranks, int index, int64_t group_id);

  const std::string getBackendName() const override { return "athanor_host"; }
  /// What has really been sent to each member.
  std::vector<int64_t> bytes_sent() const;

  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override;
  Work _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override;
  /// Split sizes count rows of dim 0; empty: even.
  Work alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_rows, std::vector<int64_t>& in_rows,
                     const c10d::AllToAllOptions& options) override;
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  Work send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  Work recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;

 private:
  Work start(Operation::Phases phases, std::vector<at::Tensor> held);
  Work start_pair(int64_t& sequence, Operation::Phases phases, const at::Tensor& held);
  Work launch(std::shared_ptr<Operation> operation);

  std::shared_ptr<Progress> progress_;
  std::shared_ptr<Members> members_;
  int64_t first_tag_;
  std::vector<int64_t> sends_to_, receives_from_;  ///< messages between pairs have numbers of their own
};

}  // namespace athanor::comm
