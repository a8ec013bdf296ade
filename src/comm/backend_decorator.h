#pragma once
// A backend that passes every collective on to another; derived classes change some of them.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace athanor::comm {

class BackendDecorator : public c10d::Backend {
 public:
  using Inner = c10::intrusive_ptr<c10d::Backend>;
  using Work = c10::intrusive_ptr<c10d::Work>;

  explicit BackendDecorator(Inner inner) : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}

  const std::string getBackendName() const override { return "decorated_" + inner_->getBackendName(); }
  c10d::ErrorType getError() override { return inner_->getError(); }
  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return inner_->allreduce(tensors, options);
  }
  Work _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override {
    return inner_->_reduce_scatter_base(out, in, options);
  }
  Work _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override {
    return inner_->_allgather_base(out, in, options);
  }
  Work alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_rows, std::vector<int64_t>& in_rows,
                     const c10d::AllToAllOptions& options) override {
    return inner_->alltoall_base(out, in, out_rows, in_rows, options);
  }
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return inner_->broadcast(tensors, options);
  }
  Work send(std::vector<at::Tensor>& tensors, int to, int tag) override { return inner_->send(tensors, to, tag); }
  Work recv(std::vector<at::Tensor>& tensors, int from, int tag) override { return inner_->recv(tensors, from, tag); }
  Work barrier(const c10d::BarrierOptions& options) override { return inner_->barrier(options); }

 protected:
  c10d::Backend& inner() const { return *inner_; }

 private:
  Inner inner_;
};

/// A Work that is complete from the start.
class NoWork : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  void synchronize() override {}
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
};

}  // namespace athanor::comm
