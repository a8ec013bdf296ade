#pragma once
// Our collectives on host memory as a c10d::Backend: point-to-point messages over a Wire (MPI, or threads in tests).
//
// So the bytes to each peer are exact, pairs without bytes exchange nothing, and sums have the order of the tree
// (communicator.h) on every network. After a timeout the ranks that have not come are known. Several collectives of one
// group may be in flight without mixing (sequence.h).

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "wire/message_pump.h"
#include "wire/node_shape.h"

namespace athanor::comm {

class HostWork : public c10d::Work {
 public:
  HostWork(std::shared_ptr<MessagePump> pump, std::shared_ptr<Operation> operation)
      : pump_(std::move(pump)), operation_(std::move(operation)) {}

  bool isCompleted() override { return operation_->done() || operation_->failed(); }
  bool isSuccess() const override { return operation_->done() && !operation_->failed(); }
  void synchronize() override {}
  /// Returns false if the timeout passes before the collective is complete and the ranks in late() do no work. 0: no
  /// limit.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  /// Returns what a peer did wrong if the operation has failed, else an empty string; members of the group are written
  /// as "{3}".
  std::string error() const { return operation_->failed() ? operation_->error() : ""; }
  /// Returns when the operation was complete, on the clock of span_clock_ns(); 0 before that.
  int64_t completed_ns() const { return operation_->completed_ns(); }
  /// Returns the ranks that had not come when wait() returned false.
  const std::vector<Late>& late() const { return late_; }
  /// Returns a name like "rank 3 (host b)" for a rank of the world.
  std::string name_of(int rank) const { return pump_->name_of(rank); }
  std::string host_of(int rank) const { return pump_->host_of(rank); }

 private:
  std::shared_ptr<MessagePump> pump_;
  std::shared_ptr<Operation> operation_;
  std::vector<Late> late_;
};

class HostBackend : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  /// @param ranks     the members' ranks on the wire, at least two.
  /// @param group_id  differs for each group that this process is in; equal on all members.
  /// @param name      the group's name, for messages.
  /// @param shape     how the members lie on nodes: large sums and gathers take two levels if there are two.
  /// @throws CommError if there are not enough tags for the group.
  HostBackend(std::shared_ptr<MessagePump> pump, std::vector<int> ranks, int index, int64_t group_id,
              const std::string& name = "", NodeShape shape = {});

  const std::string getBackendName() const override { return "athanor_host"; }
  /// Returns the bytes that have been handed to the network for each member so far.
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
  Work start(Operation::Phases phases, std::vector<at::Tensor> held, Kind kind = Kind::kCollective, int peer = -1);

  std::shared_ptr<MessagePump> pump_;
  std::shared_ptr<Members> members_;
  const NodeShape shape_;
};

}  // namespace athanor::comm
