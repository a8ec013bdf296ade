#include "comm/tree_sums.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>

#include "comm/backend_decorator.h"
#include "wire/index_tree.h"
#include "wire/tree_sum.h"

namespace athanor::comm {
namespace {

using at::Tensor;
using Step = c10::intrusive_ptr<c10d::Work>;

/// Collectives and additions that follow each other on one stream.
class Steps : public c10d::Work {
 public:
  explicit Steps(c10::Device device) : device_(device), end_(device.type()) {}

  /// Lets the current stream wait for `step`.
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

}  // namespace

c10::intrusive_ptr<c10d::Backend> with_tree_sums(c10::intrusive_ptr<c10d::Backend> inner, c10::Device device,
                                                 SumTerms sum) {
  return c10::make_intrusive<TreeSums>(std::move(inner), device, sum);
}

}  // namespace athanor::comm
