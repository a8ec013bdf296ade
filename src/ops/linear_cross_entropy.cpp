#include "ops/linear_cross_entropy.h"

#include <torch/csrc/autograd/custom_function.h>

#include "kernels/cross_entropy.h"
#include "ops/device.h"
#include "ops/linear.h"
#include "ops/played.h"
#include "ops/soft_cap.h"
#include "ops/tiles.h"

namespace athanor::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t chunk_tokens) {
  ATHANOR_ASSERT(chunk_tokens > 0 && x.dim() == 2 && targets.numel() == x.size(0));
  check_targets(targets, weight.size(0));
}

// Losses of one chunk [rows]; its logits become their gradient if grad_scale is not 0.
// @param is_greedy  bool [rows]; undefined if it is not needed.
void losses_of_chunk(const Tensor& logits, const Tensor& targets, const Tensor& losses_of_rows,
                     const Tensor& is_greedy_of_rows, double grad_scale) {
  if (played("cross_entropy", {logits, targets}, {logits, losses_of_rows, is_greedy_of_rows})) return;
  auto* losses = pointer<float>(losses_of_rows);
  auto* is_greedy = is_greedy_of_rows.defined() ? pointer<bool>(is_greedy_of_rows) : nullptr;
  const int64_t vocab = logits.size(1);
  const auto* ids = targets.const_data_ptr<int64_t>();
  with_element(logits, [&](auto* tag) {
    using T = std::decay_t<decltype(*tag)>;
    T* rows = pointer<T>(logits);
    for_rows(logits.size(0), vocab, [&](int64_t begin, int64_t end) {
      kernels::cross_entropy(rows + begin * vocab, ids + begin, losses + begin, is_greedy ? is_greedy + begin : nullptr,
                             end - begin, vocab, static_cast<float>(grad_scale));
    });
  });
}

Tensor sum_in_order(const Tensor& losses) {
  if (losses.is_meta()) return at::empty({}, losses.options().dtype(at::kDouble));
  double sum = 0;
  const float* loss = losses.const_data_ptr<float>();
  for (int64_t i = 0; i < losses.numel(); ++i) sum += loss[i];
  return at::scalar_tensor(sum, at::kDouble);
}

struct LinearCrossEntropy : torch::autograd::Function<LinearCrossEntropy> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Weight& weight, const Tensor& targets,
                        double grad_scale, int64_t chunk_tokens, const LabelDraw& draw, double cap) {
    const int64_t tokens = x.size(0);
    Tensor losses = at::empty({tokens}, x.options().dtype(at::kFloat)), dx = at::empty_like(x);
    for (int64_t begin = 0; begin < tokens; begin += chunk_tokens) {
      const int64_t count = std::min(chunk_tokens, tokens - begin);
      const Tensor chunk = x.narrow(0, begin, count);
      const Tensor uncapped = matmul(chunk, weight.value, /*transposed=*/true), logits = soft_cap(uncapped, cap);
      const Tensor labels = labels_of(logits, targets.narrow(0, begin, count), draw.from_row(begin));
      losses_of_chunk(logits, labels, losses.narrow(0, begin, count), {}, grad_scale);
      soft_cap_gradient_(logits, uncapped, cap);
      matmul_into(dx.narrow(0, begin, count), logits, weight.value, /*transposed=*/false);
      add_outer_product(weight.grad, logits, chunk);
    }
    ctx->saved_data["dx"] = dx;
    return sum_in_order(losses);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    check_unit_gradient(grads[0]);  // the weight's part was added in forward
    return {ctx->saved_data["dx"].toTensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

void check_targets(const Tensor& targets, int64_t vocab) {
  if (!targets.is_cpu()) return;
  const auto* target = targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < targets.numel(); ++i) {
    ATHANOR_CHECK_DATA(target[i] == kernels::kNoTarget || (target[i] >= 0 && target[i] < vocab),
                       "target {} of position {} is not a token of the model, which has {}; was the data prepared with "
                       "another tokenizer?",
                       target[i], i, vocab);
  }
}

void check_unit_gradient(const Tensor& dloss) { ATHANOR_ASSERT(!dloss.is_cpu() || dloss.item<double>() == 1); }

Tensor linear_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& targets, double grad_scale,
                            int64_t chunk_tokens, const LabelDraw& draw, double cap) {
  if (device::takes(x)) return device::linear_cross_entropy(x, weight, targets, grad_scale, chunk_tokens, draw, cap);
  ATHANOR_ASSERT(grad_scale != 0 && weight.grad.defined());
  const Tensor ids = targets.contiguous();
  check(x, weight.value, ids, chunk_tokens);
  return LinearCrossEntropy::apply(x.contiguous(), weight, ids, grad_scale, chunk_tokens, draw, cap);
}

TokenLosses token_losses(const Tensor& x, const Tensor& weight, const Tensor& targets, int64_t chunk_tokens,
                         double cap) {
  if (device::takes(x)) return device::token_losses(x, weight, targets, chunk_tokens, cap);
  const at::NoGradGuard no_grad;
  const Tensor ids = targets.contiguous();
  check(x, weight, ids, chunk_tokens);
  const int64_t tokens = x.size(0);
  TokenLosses result{at::empty({tokens}, x.options().dtype(at::kFloat)),
                     at::empty({tokens}, x.options().dtype(at::kBool))};
  for (int64_t begin = 0; begin < tokens; begin += chunk_tokens) {
    const int64_t count = std::min(chunk_tokens, tokens - begin);
    const Tensor logits = soft_cap(matmul(x.narrow(0, begin, count), weight, /*transposed=*/true), cap);
    losses_of_chunk(logits, ids.narrow(0, begin, count), result.loss.narrow(0, begin, count),
                    result.is_greedy.narrow(0, begin, count), 0);
  }
  return result;
}

namespace portable {

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets, double cap) {
  Tensor logits = at::linear(x, weight).to(wide_type(x));
  if (cap > 0) logits = (logits / cap).tanh() * cap;
  return at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, /*ignore_index=*/kernels::kNoTarget);
}

}  // namespace portable
}  // namespace athanor::ops
