#include "ops/linear_cross_entropy.h"

#include <torch/csrc/autograd/custom_function.h>

#include <limits>

#include "kernels/cuda/cross_entropy.h"
#include "ops/device.h"
#include "ops/device/on_stream.h"
#include "ops/soft_cap.h"
#include "ops/transfer.h"

namespace athanor::ops::device {
namespace {

using kernels::kNoTarget;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_shapes(const Tensor& x, const Tensor& targets, int64_t chunk_tokens) {
  ATHANOR_ASSERT(chunk_tokens > 0 && x.dim() == 2 && targets.numel() == x.size(0));
}

Tensor wrong_targets(const Tensor& targets, int64_t vocab) {
  return (targets != kNoTarget).logical_and((targets < 0).logical_or(targets >= vocab));
}

// A wrong id would read beyond a row of logits. The host waits.
void check_targets_now(const Tensor& x, const Tensor& weight, const Tensor& targets) {
  const int64_t vocab = weight.size(0);
  int64_t bad = -1;
  if (has_kernels(x)) {
    const Tensor first_bad = at::empty({1}, targets.options());
    kernels::cuda::find_bad_target(OnStream(x), data<int64_t>(targets), targets.numel(), vocab,
                                   data<int64_t>(first_bad));
    bad = fetch_item<int64_t>(first_bad);
  } else if (targets.numel() > 0) {
    const Tensor wrong = fetch(wrong_targets(targets, vocab)).reshape({-1});
    const int64_t first = wrong.to(at::kInt).argmax().item<int64_t>();
    if (wrong[first].item<bool>()) bad = first;
  }
  ATHANOR_CHECK_DATA(bad < 0,
                     "target {} of position {} is not a token of the model, which has {}; was the data prepared with "
                     "another tokenizer?",
                     fetch_item<int64_t>(targets.reshape({-1})[bad]), bad, vocab);
}

TokenLosses empty_losses(const Tensor& x) {
  return {at::empty({x.size(0)}, x.options().dtype(at::kFloat)), at::empty({x.size(0)}, x.options().dtype(at::kBool))};
}

// Computes a chunk, the tokens from `begin` on; its logits become their gradient if grad_scale is not 0, and then
// is_greedy is not computed.
// @param targets  of the chunk.
void losses_of_chunk(const Tensor& logits, const Tensor& targets, double grad_scale, const TokenLosses& into,
                     int64_t begin) {
  const int64_t rows = logits.size(0);
  const auto part = [&](const Tensor& x) { return x.narrow(0, begin, rows); };
  if (!has_kernels(logits)) {
    const TokenLosses losses = without_kernels::cross_entropy(logits, targets, grad_scale);
    part(into.loss).copy_(losses.loss);
    part(into.is_greedy).copy_(losses.is_greedy);
    return;
  }
  const OnStream stream(logits);
  with_element(logits, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    kernels::cuda::cross_entropy<T>(stream, data<T>(logits), data<int64_t>(targets), data<float>(part(into.loss)),
                                    grad_scale == 0 ? data<bool>(part(into.is_greedy)) : nullptr, rows, logits.size(1),
                                    static_cast<float>(grad_scale));
  });
}

Tensor sum_of(const Tensor& losses) {
  if (!has_kernels(losses)) return losses.to(at::kDouble).sum();
  const Tensor sum = at::empty({}, losses.options().dtype(at::kDouble));
  kernels::cuda::sum_losses(OnStream(losses), data<float>(losses), losses.numel(), data<double>(sum));
  return sum;
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Weight& weight, const Tensor& targets,
                        double grad_scale, int64_t chunk_tokens, const LabelDraw& draw, double cap) {
    const int64_t tokens = x.size(0);
    const TokenLosses losses = empty_losses(x);
    const Tensor dx = at::empty_like(x);
    for (int64_t begin = 0; begin < tokens; begin += chunk_tokens) {
      const int64_t count = std::min(chunk_tokens, tokens - begin);
      const Tensor chunk = x.narrow(0, begin, count);
      const Tensor uncapped = at::linear(chunk, weight.value), logits = ops::soft_cap(uncapped, cap);
      const Tensor labels = labels_of(logits, targets.narrow(0, begin, count), draw.from_row(begin));
      losses_of_chunk(logits, labels, grad_scale, losses, begin);
      ops::soft_cap_gradient_(logits, uncapped, cap);
      Tensor dx_chunk = dx.narrow(0, begin, count);
      at::mm_out(dx_chunk, logits, weight.value);
      device::add_outer_product(weight.grad, logits, chunk);
    }
    ctx->saved_data["dx"] = dx;
    return sum_of(losses.loss);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    ATHANOR_ASSERT(!grads[0].is_cpu() || grads[0].item<double>() == 1);  // the weight's part was added in forward
    return {ctx->saved_data["dx"].toTensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& targets, double grad_scale,
                            int64_t chunk_tokens, const LabelDraw& draw, double cap) {
  ATHANOR_ASSERT(grad_scale != 0 && weight.grad.defined());
  check_shapes(x, targets, chunk_tokens);
  const Tensor ids = targets.contiguous();
  if (x.is_cpu()) {
    check_targets_now(x, weight.value, ids);
    return LinearCrossEntropy::apply(x.contiguous(), weight, ids, grad_scale, chunk_tokens, draw, cap);
  }
  // The host does not wait: a wrong target makes the loss NaN, so that the guard refuses the step. Our kernel does it.
  if (has_kernels(x))
    return LinearCrossEntropy::apply(x.contiguous(), weight, ids, grad_scale, chunk_tokens, draw, cap);
  const Tensor wrong = wrong_targets(ids, weight.value.size(0)), safe = ids.masked_fill(wrong, kNoTarget);
  const Tensor loss = LinearCrossEntropy::apply(x.contiguous(), weight, safe, grad_scale, chunk_tokens, draw, cap);
  return loss + at::zeros_like(loss).masked_fill_(wrong.any(), std::numeric_limits<double>::quiet_NaN());
}

TokenLosses token_losses(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t chunk_tokens,
                         double cap) {
  const at::NoGradGuard no_grad;
  check_shapes(x, targets, chunk_tokens);
  const Tensor ids = targets.contiguous();
  check_targets_now(x, weight, ids);
  const int64_t tokens = x.size(0);
  TokenLosses result = empty_losses(x);
  for (int64_t begin = 0; begin < tokens; begin += chunk_tokens) {
    const int64_t count = std::min(chunk_tokens, tokens - begin);
    const Tensor logits = ops::soft_cap(at::linear(x.narrow(0, begin, count), weight), cap);
    losses_of_chunk(logits, ids.narrow(0, begin, count), 0, result, begin);
  }
  return result;
}

namespace without_kernels {

TokenLosses cross_entropy(const Tensor& logits, const Tensor& targets, double grad_scale) {
  const Tensor has_target = targets != kNoTarget, index = targets.clamp_min(0).unsqueeze(1);
  const Tensor log_probs = at::log_softmax(logits.to(at::kFloat), 1);
  const Tensor loss = at::where(has_target, -log_probs.gather(1, index).squeeze(1), 0.0f);
  // The first of the largest: the lowest index among those that have the largest value.
  const Tensor first = (logits == std::get<0>(logits.max(1, /*keepdim=*/true))).to(at::kInt).argmax(1);
  if (grad_scale != 0) {
    const Tensor ones = at::ones({index.size(0), 1}, log_probs.options());
    const Tensor gradient = log_probs.exp().scatter_add(1, index, -ones) * grad_scale;
    logits.copy_(at::where(has_target.unsqueeze(1), gradient, 0.0f));
  }
  return {loss, has_target.logical_and(first == targets)};
}

}  // namespace without_kernels

}  // namespace athanor::ops::device
