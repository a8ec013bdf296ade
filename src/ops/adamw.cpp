#include "ops/adamw.h"

#include <atomic>
#include <cmath>

#include "kernels/cuda/adamw.h"
#include "ops/device/on_stream.h"
#include "ops/master.h"
#include "ops/played.h"
#include "ops/update_memory.h"

namespace athanor::ops {
namespace {

using device::data;
using kernels::AdamwStep;
using kernels::Bf16;

// The update in torch ops, with the kernels' order of operations.
void portable_adamw(const AdamwStep& rule, const AdamwMemory& memory, const Tensor& grad_scale, const Tensor& changed) {
  const bool split = memory.master_low.defined();
  const Tensor applies = grad_scale.isnan().logical_not();
  const auto set = [&](const Tensor& to, const Tensor& value) { to.copy_(at::where(applies, value, to)); };
  const Tensor g = memory.grad * grad_scale,
               before = split ? join_master(memory.weight, memory.master_low) : memory.weight;
  const Tensor m = memory.exp_avg + (g - memory.exp_avg) * static_cast<float>(1 - rule.beta1);
  const Tensor v = memory.exp_avg_sq * static_cast<float>(rule.beta2) + g * static_cast<float>(1 - rule.beta2) * g;
  // A number would make the division a product with its reciprocal.
  const Tensor correction = at::full({1}, std::sqrt(rule.bias_correction2), v.options());
  const Tensor root = v.sqrt() / correction + rule.eps;
  const Tensor after = at::where(
      applies, before * (1.0f - rule.lr * rule.weight_decay) - m * (rule.lr / rule.bias_correction1) / root, before);
  set(memory.exp_avg, m);
  set(memory.exp_avg_sq, v);
  set(memory.grad, at::zeros_like(memory.grad));
  const Tensor old = memory.weight.clone();
  if (split) {
    split_master(after, memory.weight, memory.master_low);
  } else {
    memory.weight.copy_(after);
  }
  changed.add_((memory.weight != old).sum());
}

int64_t adamw_on_host(const AdamwStep& rule, const AdamwMemory& memory) {
  if (played("adamw", {memory.weight, memory.master_low, memory.exp_avg, memory.exp_avg_sq, memory.grad},
             {memory.weight, memory.master_low, memory.exp_avg, memory.exp_avg_sq, memory.grad}))
    return 0;
  auto *m = pointer<float>(memory.exp_avg), *v = pointer<float>(memory.exp_avg_sq), *grad = pointer<float>(memory.grad);
  const bool split = memory.master_low.defined();
  auto* master = split ? nullptr : pointer<float>(memory.weight);
  auto* weight = split ? pointer<Bf16>(memory.weight) : nullptr;
  auto* low = split ? pointer<uint16_t>(memory.master_low) : nullptr;
  std::atomic<int64_t> changed{0};
  for_rows(memory.weight.numel(), 1, [&](int64_t begin, int64_t end) {
    changed += split
                   ? kernels::adamw(rule, weight + begin, low + begin, m + begin, v + begin, grad + begin, end - begin)
                   : kernels::adamw(rule, master + begin, m + begin, v + begin, grad + begin, end - begin);
  });
  return changed;
}

void queue_adamw(const AdamwStep& rule, const AdamwMemory& memory, const Tensor& grad_scale, const Tensor& changed) {
  if (!device::has_kernels(memory.weight)) return portable_adamw(rule, memory, grad_scale, changed);
  const device::OnStream stream(memory.weight);
  auto *m = data<float>(memory.exp_avg), *v = data<float>(memory.exp_avg_sq), *grad = data<float>(memory.grad);
  const int64_t n = memory.weight.numel();
  if (memory.master_low.defined()) {
    kernels::cuda::adamw(stream, rule, data<Bf16>(memory.weight), data<uint16_t>(memory.master_low), m, v, grad, n,
                         data<int64_t>(changed), data<float>(grad_scale));
  } else {
    kernels::cuda::adamw(stream, rule, data<float>(memory.weight), m, v, grad, n, data<int64_t>(changed),
                         data<float>(grad_scale));
  }
}

}  // namespace

int64_t adamw(const AdamwStep& rule, const AdamwMemory& memory, const OnDevice& there) {
  if (on_host(memory.weight)) return adamw_on_host(rule, memory);
  queue_adamw(rule, memory, there.grad_scale, there.changed);
  return 0;
}

}  // namespace athanor::ops
