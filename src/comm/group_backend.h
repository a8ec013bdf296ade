#pragma once
// Presents a communicator as a backend, so that something can be put between it and another communicator, whatever
// transport the first uses.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace athanor::comm {

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

}  // namespace athanor::comm
