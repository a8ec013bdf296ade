#include "parallel/tensor_parallel.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "comm/watches.h"

namespace athanor::inline parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SavedRanks : torch::CustomClassHolder {
  explicit SavedRanks(const TensorRanks& saved) : ranks(saved) {}
  TensorRanks ranks;
};

void keep(AutogradContext* ctx, const TensorRanks& ranks) {
  ctx->saved_data["ranks"] = c10::IValue::make_capsule(c10::make_intrusive<SavedRanks>(ranks));
}
TensorRanks kept(AutogradContext* ctx) {
  const auto saved = ctx->saved_data["ranks"].toCapsule();
  return static_cast<SavedRanks&>(*saved).ranks;
}

// While a backward runs, its node holds a second handle of each gradient.
constexpr size_t kOwnHandles = 2;

// Returns a gradient that may be summed in place: the given one, or a copy if others may still read it.
Tensor spent(const Tensor& grad) {
  const bool is_ours = grad.is_contiguous() && grad.use_count() <= kOwnHandles && grad.storage().use_count() == 1;
  return is_ours ? grad.detach() : grad.clone(at::MemoryFormat::Contiguous);
}

Tensor all_reduced(const Tensor& x, const TensorRanks& ranks) {
  const comm::SendsFor purpose(TrafficPurpose::kLayers);
  ranks.group->all_reduce(x).wait();
  return x;
}

std::vector<int64_t> shape_of_part(const Tensor& x, const TensorRanks& ranks) {
  const int64_t tokens = x.size(0) * x.size(1);
  ATHANOR_ASSERT(x.dim() == 3 && tokens % ranks.size() == 0);
  return {1, tokens / ranks.size(), x.size(2)};
}

// Returns the sum of all ranks' x [B, T, D], for this rank's tokens.
Tensor reduce_scattered(const Tensor& x, const TensorRanks& ranks) {
  const Tensor from = x.contiguous(), sum = at::empty(shape_of_part(x, ranks), x.options());
  const comm::SendsFor purpose(TrafficPurpose::kLayers);
  ranks.group->reduce_scatter(sum, from).wait();
  return sum;
}

Tensor own_tokens(const Tensor& x, const TensorRanks& ranks) {
  const auto shape = shape_of_part(x, ranks);
  return x.reshape({-1, x.size(2)}).narrow(0, ranks.rank() * shape[1], shape[1]).unsqueeze(0);
}

struct Enter : torch::autograd::Function<Enter> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const TensorRanks& ranks, int64_t batch) {
    keep(ctx, ranks);
    ctx->set_materialize_grads(false);
    const Tensor read = gather_tokens(x, ranks, batch);
    return {read.detach(), read.detach()};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const TensorRanks ranks = kept(ctx);
    Tensor replicated = std::move(grads[0]), partitioned = std::move(grads[1]);
    grads.clear();
    if (replicated.defined() && ranks.shares_tokens()) replicated = own_tokens(replicated, ranks);
    if (!partitioned.defined()) return {replicated, Tensor(), Tensor()};
    Tensor sum = ranks.shares_tokens() ? reduce_scattered(partitioned, ranks) : all_reduced(spent(partitioned), ranks);
    if (replicated.defined()) sum.add_(replicated);
    return {sum, Tensor(), Tensor()};
  }
};

struct Leave : torch::autograd::Function<Leave> {
  static Tensor forward(AutogradContext* ctx, const Tensor& y, const TensorRanks& ranks) {
    keep(ctx, ranks);
    ctx->saved_data["batch"] = y.size(0);
    const Tensor part = y.detach().contiguous();
    return ranks.shares_tokens() ? reduce_scattered(part, ranks) : all_reduced(part, ranks);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {gather_tokens(grads[0], kept(ctx), ctx->saved_data["batch"].toInt()), Tensor()};
  }
};

struct SumGradient : torch::autograd::Function<SumGradient> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const TensorRanks& ranks) {
    keep(ctx, ranks);
    return x.detach();
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Tensor grad = std::move(grads[0]);
    grads.clear();
    return {all_reduced(spent(grad), kept(ctx)), Tensor()};
  }
};

}  // namespace

Tensor gather_tokens(const Tensor& x, const TensorRanks& ranks, int64_t batch) {
  if (!ranks.shares_tokens()) return x;
  const at::NoGradGuard no_grad;
  const int64_t tokens = x.size(0) * x.size(1) * ranks.size();
  ATHANOR_ASSERT(x.dim() == 3 && x.size(0) == 1 && tokens % batch == 0);
  const Tensor own = x.detach().contiguous(), all = at::empty({batch, tokens / batch, x.size(2)}, x.options());
  const comm::SendsFor purpose(TrafficPurpose::kLayers);
  ranks.group->all_gather(all, own).wait();
  return all;
}

TensorParallelInput enter_tensor_parallel(const Tensor& x, const TensorRanks& ranks, int64_t batch) {
  if (ranks.alone()) return {x, x};
  const auto outputs = Enter::apply(x, ranks, batch);
  return {outputs[0], outputs[1]};
}

Tensor leave_tensor_parallel(const Tensor& y, const TensorRanks& ranks) {
  return ranks.alone() ? y : Leave::apply(y, ranks);
}

Tensor sum_gradient(const Tensor& x, const TensorRanks& ranks) {
  return ranks.alone() ? x : SumGradient::apply(x, ranks);
}

}  // namespace athanor::inline parallel
