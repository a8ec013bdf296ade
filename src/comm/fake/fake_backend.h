#pragma once
// One rank of a world of any size without peers: collectives complete at once. Data of other ranks are zeros, this
// rank's are present, and a sum is this rank's term alone. It serves dry runs: memory, shapes and calls are those of a
// real world.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <string>
#include <vector>

namespace athanor::comm {

class FakeBackend : public c10d::Backend {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  FakeBackend(int rank, int size) : Backend(rank, size) {}
  const std::string getBackendName() const override { return "athanor_fake"; }

  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override;
  Work _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override;
  Work alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_rows, std::vector<int64_t>& in_rows,
                     const c10d::AllToAllOptions& options) override;
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override;
  Work send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  Work recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  Work barrier(const c10d::BarrierOptions& options) override;
};

}  // namespace athanor::comm
