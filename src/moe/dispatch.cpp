#include "moe/dispatch.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>

#include "moe/dispatch_form.h"
#include "ops/device/on_stream.h"

namespace athanor::moe {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// One layer's exchange, from its forward to its backward.
struct Call : torch::CustomClassHolder {
  Call(const DispatchInput& input, const ops::ExpertWeights& experts, CombineWeights combine)
      : in_flight(input.options.in_flight), exchange(make_exchange(input)),
        local(input.form.local_experts(experts, input.group.rank() * input.experts_per_rank, combine)) {}

  int64_t in_flight;
  std::unique_ptr<Exchange> exchange;
  std::unique_ptr<LocalExperts> local;
  Tensor x_ND;  // the received tokens, for the weights' gradients
};

// Sends in_TD, computes each chunk when it has arrived, and begins to send the result back. While one chunk is
// computed, `in_flight` chunks are on their way in, and as many on their way back.
template <class F>
void pass_chunks(Exchange& exchange, int64_t in_flight, const Tensor& in_TD, const Tensor& in_ND, const Tensor& out_TD,
                 F compute) {
  const int64_t chunks = exchange.num_chunks();
  for (int64_t c = 0; c < std::min(in_flight, chunks); ++c) exchange.begin_send(c, in_TD, in_ND);
  const Received& received = exchange.received();
  for (int64_t c = 0; c < chunks; ++c) {
    exchange.finish_send(c);
    if (in_flight > 1 && c + 1 < chunks) exchange.advance_send(c + 1);
    if (c + in_flight < chunks) exchange.begin_send(c + in_flight, in_TD, in_ND);
    exchange.begin_return(c, compute(received, c));
    if (c > 0) exchange.advance_return(c - 1);
    if (c >= in_flight) exchange.finish_return(c - in_flight, out_TD);
  }
}

void finish_returns(Exchange& exchange, int64_t in_flight, const Tensor& out_TD) {
  const int64_t chunks = exchange.num_chunks();
  for (int64_t c = std::max<int64_t>(0, chunks - in_flight); c < chunks; ++c) exchange.finish_return(c, out_TD);
}

Tensor run_forward(Call& call, const Tensor& x_TD, bool keep) {
  Exchange& exchange = *call.exchange;
  const Tensor y_TD = at::empty_like(x_TD);
  const Tensor x_ND = at::empty({exchange.num_received(), x_TD.size(1)}, x_TD.options());
  pass_chunks(exchange, call.in_flight, x_TD, x_ND, y_TD, [&](const Received& received, int64_t c) {
    return call.local->forward(received, c, received.chunk(x_ND, c), keep);
  });
  finish_returns(exchange, call.in_flight, y_TD);
  if (keep) call.x_ND = x_ND;
  return y_TD;
}

struct Dispatched : torch::autograd::Function<Dispatched> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x_TD, const Tensor& /*weights_TK*/,
                        const c10::intrusive_ptr<Call>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return run_forward(*call, x_TD, /*keep=*/true);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto capsule = ctx->saved_data["call"].toCapsule();
    ctx->saved_data.clear();  // frees what it holds, before the graph ends with backward
    auto& call = static_cast<Call&>(*capsule);
    Exchange& exchange = *call.exchange;
    const Tensor dy_TD = grads[0].contiguous(), dy_ND = at::empty_like(call.x_ND), dx_TD = at::empty_like(dy_TD);
    const Tensor dweights_NK = at::zeros_like(exchange.received().weights_NK);
    pass_chunks(exchange, call.in_flight, dy_TD, dy_ND, dx_TD, [&](const Received& received, int64_t c) {
      return call.local->backward(received, c, received.chunk(dy_ND, c), dweights_NK);
    });
    exchange.begin_return_weights(dweights_NK);
    call.local->add_weight_gradients(exchange.received(), call.x_ND, dy_ND);  // while the last dx are being sent
    finish_returns(exchange, call.in_flight, dx_TD);
    return {dx_TD, exchange.finish_return_weights(), Tensor()};
  }
};

}  // namespace

const DispatchForm& DispatchForm::of(const Tensor& x_TD, const DispatchOptions& options) {
  static const HostForm host{};
  static const DeviceForm device{};
  static const PortableForm portable{};
  switch (ops::device::form_of(x_TD)) {
    case ops::device::Form::kHost: return options.device_form ? static_cast<const DispatchForm&>(device) : host;
    case ops::device::Form::kKernels: return device;
    case ops::device::Form::kPortable: return portable;
  }
  fail<Error>("bug: a form of no kind");
}

int64_t DispatchInput::most_choices(int64_t experts, int64_t ranks) const {
  const bool is_known = form.is_queued() && known.equal && known.most_of_expert >= 0;
  return is_known ? known.most_of_expert * experts * ranks : -1;
}

std::unique_ptr<Exchange> make_exchange(const DispatchInput& input) {
  if (input.options.kind == DispatchKind::kAllGather) return input.form.exchange_by_allgather(input);
  if (input.options.kind == DispatchKind::kAllToAll) return exchange_by_all_to_all(input);
  if (input.options.kind == DispatchKind::kAllToAll2d) return exchange_by_all_to_all_2d(input);
  fail<Error>("bug: {} is no exchange", word_of(input.options.kind));
}

Dispatch::Dispatch(comm::Communicator& group, const DispatchOptions& options) : group_(group), options_(options) {
  ATHANOR_ASSERT(options.kind != DispatchKind::kAuto && options.chunks > 0 && options.in_flight > 0);
  ATHANOR_CHECK(options.inner_ranks > 0 && group.size() % options.inner_ranks == 0,
                "all_to_all_2d: {} ranks of a node must divide the {} of the expert group", options.inner_ranks,
                group.size());
}

Tensor Dispatch::experts(const Tensor& x_TD, const Tensor& weights_TK, const Tensor& expert_ids_TK,
                         const ops::ExpertWeights& local, CombineWeights combine, const KnownTokens& known,
                         const std::function<void()>& meanwhile) {
  const bool keep = at::GradMode::is_enabled() && local.up_LFD.grad.defined();
  const Tensor x = x_TD.contiguous(), weights = weights_TK.contiguous();
  const DispatchInput input{group_,
                            options_,
                            weights.detach(),
                            expert_ids_TK.contiguous(),
                            local.num_experts(),
                            DispatchForm::of(x, options_),
                            known};
  const auto call = c10::make_intrusive<Call>(input, local, combine);
  // The host's exchange has begun nothing that this could hide, and there the order of gradients stays as it was.
  if (meanwhile && input.form.is_queued()) meanwhile();
  Tensor y;
  if (keep) {
    y = Dispatched::apply(x, weights, call);
  } else {
    const at::NoGradGuard no_grad;
    y = run_forward(*call, x, /*keep=*/false);
  }
  if (meanwhile && !input.form.is_queued()) meanwhile();
  return y;
}

}  // namespace athanor::moe
