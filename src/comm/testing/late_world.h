#pragma once
// For tests: a world whose collectives write their results when they are waited for, and not a moment earlier. Code
// that leaves a wait out reads what was there before, always, and not only on a slow network.

#include <utility>

#include "comm/backend_decorator.h"
#include "comm/derived_worlds.h"

namespace athanor::comm {

/// A call on copies, whose result is copied to its place by wait().
class LateWork : public c10d::Work {
 public:
  LateWork(c10::intrusive_ptr<c10d::Work> work, at::Tensor result, at::Tensor place)
      : work_(std::move(work)), result_(std::move(result)), place_(std::move(place)) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds timeout) override {
    if (!work_->wait(timeout)) return false;
    if (result_.defined()) place_.copy_(std::exchange(result_, {}));
    return true;
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  at::Tensor result_, place_;
};

class LateGroup : public BackendDecorator {
 public:
  using BackendDecorator::BackendDecorator;

  Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    std::vector<at::Tensor> copies = {tensors.at(0).clone()};
    return late(inner().allreduce(copies, options), copies[0], tensors[0]);
  }
  Work broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    std::vector<at::Tensor> copies = {tensors.at(0).clone()};
    return late(inner().broadcast(copies, options), copies[0], tensors[0]);
  }
  Work _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& options) override {
    at::Tensor result = at::empty_like(out), terms = in.clone();
    return late(inner()._reduce_scatter_base(result, terms, options), result, out);
  }
  Work _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override {
    at::Tensor result = at::empty_like(out), part = in.clone();
    return late(inner()._allgather_base(result, part, options), result, out);
  }

 private:
  static Work late(Work work, const at::Tensor& result, const at::Tensor& place) {
    return c10::make_intrusive<LateWork>(std::move(work), result, place);
  }
};

/// `world` must outlive the result. All-to-alls and messages are as they were.
inline std::unique_ptr<World> late_world(World& world) {
  return decorated_world(world, [](const GroupOptions&, c10::intrusive_ptr<c10d::Backend> backend) {
    return c10::make_intrusive<LateGroup>(std::move(backend));
  });
}

}  // namespace athanor::comm
