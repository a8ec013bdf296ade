#include "parallel/norm_over_ranks.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "comm/watches.h"
#include "ops/norm_halves.h"

namespace athanor::inline parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SavedGroup : torch::CustomClassHolder {
  explicit SavedGroup(comm::Communicator& saved) : group(saved) {}
  comm::Communicator& group;
};

// Returns a tensor with one value for each row of q, then of k.
Tensor empty_per_row(const Tensor& q, const Tensor& k) {
  ATHANOR_ASSERT(ops::num_rows(q) == ops::num_rows(k));
  return at::empty({2, ops::num_rows(q)}, q.options().dtype(at::kFloat));
}

// Turns sums over this rank's columns into means over all ranks' columns.
void to_means(const Tensor& sums, const Tensor& q, const Tensor& k, comm::Communicator& group) {
  const comm::SendsFor purpose(TrafficPurpose::kLayers);
  group.all_reduce(sums).wait();
  sums[0].div_(static_cast<double>(q.size(-1) * group.size()));
  sums[1].div_(static_cast<double>(k.size(-1) * group.size()));
}

struct NormOverRanks : torch::autograd::Function<NormOverRanks> {
  static variable_list forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Weight& q_weight,
                               const Weight& k_weight, const ops::RmsForm& form, comm::Communicator& group) {
    const Tensor means = empty_per_row(q, k);
    ops::square_sums_into(q, means[0]);
    ops::square_sums_into(k, means[1]);
    to_means(means, q, k, group);
    const Tensor rstd = means.add_(form.eps).rsqrt_();
    ctx->save_for_backward({q, k});
    ctx->saved_data["rstd"] = rstd;
    ctx->saved_data["offset"] = form.offset;
    ctx->saved_data["values"] = std::vector<Tensor>{q_weight.value, k_weight.value};
    if (q_weight.grad.defined()) ctx->saved_data["grads"] = std::vector<Tensor>{q_weight.grad, k_weight.grad};
    ctx->saved_data["group"] = c10::IValue::make_capsule(c10::make_intrusive<SavedGroup>(group));
    return {ops::norm_scale(q, q_weight.value, rstd[0], form.offset),
            ops::norm_scale(k, k_weight.value, rstd[1], form.offset)};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor q = saved[0], k = saved[1], rstd = ctx->saved_data["rstd"].toTensor();
    const auto values = ctx->saved_data["values"].toTensorVector();
    const double offset = ctx->saved_data["offset"].toDouble();
    const bool learns = ctx->saved_data.count("grads") > 0;
    const auto buckets = learns ? ctx->saved_data["grads"].toTensorVector() : std::vector<Tensor>(2);
    const auto held = ctx->saved_data["group"].toCapsule();
    const Tensor dq = grads[0].contiguous(), dk = grads[1].contiguous(), means = empty_per_row(q, k);
    ops::norm_dots_into(dq, q, values[0], rstd[0], means[0], offset);
    ops::norm_dots_into(dk, k, values[1], rstd[1], means[1], offset);
    to_means(means, q, k, static_cast<SavedGroup&>(*held).group);
    return {ops::norm_gradient(dq, q, {values[0], buckets[0]}, rstd[0], means[0], offset),
            ops::norm_gradient(dk, k, {values[1], buckets[1]}, rstd[1], means[1], offset),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }
};

}  // namespace

QueryKey rms_norm_over_ranks(const QueryKey& x, const Weight& q_weight, const Weight& k_weight,
                             const ops::RmsForm& form, comm::Communicator& ranks) {
  const auto outputs = NormOverRanks::apply(x.q.contiguous(), x.k.contiguous(), q_weight, k_weight, form, ranks);
  return {outputs[0], outputs[1]};
}

}  // namespace athanor::inline parallel
