#include "ops/update.h"

#include <atomic>
#include <cmath>
#include <vector>

#include "kernels/cuda/update.h"
#include "ops/device/on_stream.h"
#include "ops/master.h"

namespace athanor::ops {
namespace {

using device::data;
using kernels::Bf16;
using kernels::Masters;

bool on_host(const UpdateMemory& memory) { return memory.grad.is_cpu(); }

Masters masters_of(const UpdateMemory& memory) {
  if (!memory.master_low.defined()) return {pointer<float>(memory.weight), nullptr, nullptr};
  return {nullptr, pointer<Bf16>(memory.weight), pointer<uint16_t>(memory.master_low)};
}

bool has_kernels(const UpdateMemory& memory) { return device::has_kernels(memory.grad); }

Masters masters_there(const UpdateMemory& memory) {
  if (!memory.master_low.defined()) return {data<float>(memory.weight), nullptr, nullptr};
  return {nullptr, data<Bf16>(memory.weight), data<uint16_t>(memory.master_low)};
}

Tensor applies_of(const OnDevice& there) { return there.grad_scale.isnan().logical_not(); }

Tensor masters_on_device(const UpdateMemory& memory) {
  return memory.master_low.defined() ? join_master(memory.weight, memory.master_low) : memory.weight;
}

// Stores the masters where the step is not refused, and counts the weights that change.
void store_on_device(const UpdateMemory& memory, const Tensor& before, const Tensor& after, const OnDevice& there) {
  const Tensor stored = at::where(applies_of(there), after, before), old = memory.weight.clone();
  if (memory.master_low.defined()) {
    split_master(stored, memory.weight, memory.master_low);
  } else {
    memory.weight.copy_(stored);
  }
  there.changed.add_((memory.weight != old).sum());
}

void set_where(const Tensor& applies, const Tensor& to, const Tensor& value) {
  to.copy_(at::where(applies, value, to));
}

void clear_where(const Tensor& applies, const Tensor& to) { set_where(applies, to, at::zeros_like(to)); }

}  // namespace

int64_t sgd(const kernels::SgdStep& rule, const UpdateMemory& memory, const Tensor& momentum, const OnDevice& there) {
  if (on_host(memory)) {
    auto *m = pointer<float>(momentum), *grad = pointer<float>(memory.grad);
    std::atomic<int64_t> changed{0};
    for_rows(memory.grad.numel(), 1, [&](int64_t at, int64_t end) {
      changed += kernels::sgd(rule, masters_of(memory).at(at), m + at, grad + at, end - at);
    });
    return changed;
  }
  if (has_kernels(memory)) {
    kernels::cuda::sgd(device::OnStream(memory.grad), rule, masters_there(memory), data<float>(momentum),
                       data<float>(memory.grad), memory.grad.numel(), data<int64_t>(there.changed),
                       data<float>(there.grad_scale));
    return 0;
  }
  const Tensor applies = applies_of(there), g = memory.grad * there.grad_scale, before = masters_on_device(memory);
  const Tensor m = momentum * rule.momentum + g, step = rule.nesterov ? g + m * rule.momentum : m;
  set_where(applies, momentum, m);
  clear_where(applies, memory.grad);
  store_on_device(memory, before, before * (1.0f - rule.lr * rule.weight_decay) - step * rule.lr, there);
  return 0;
}

int64_t sophia(const kernels::SophiaStep& rule, const UpdateMemory& memory, const Tensor& exp_avg,
               const Tensor& hessian, const Tensor& clipped, const OnDevice& there) {
  if (on_host(memory)) {
    auto *m = pointer<float>(exp_avg), *grad = pointer<float>(memory.grad);
    const auto* h = pointer<float>(hessian);
    std::atomic<int64_t> changed{0}, num_clipped{0};
    for_rows(memory.grad.numel(), 1, [&](int64_t at, int64_t end) {
      const auto counts = kernels::sophia(rule, masters_of(memory).at(at), m + at, h + at, grad + at, end - at);
      changed += counts.changed;
      num_clipped += counts.clipped;
    });
    *clipped.data_ptr<int64_t>() += num_clipped;
    return changed;
  }
  if (has_kernels(memory)) {
    kernels::cuda::sophia(device::OnStream(memory.grad), rule, masters_there(memory), data<float>(exp_avg),
                          data<float>(hessian), data<float>(memory.grad), memory.grad.numel(),
                          data<int64_t>(there.changed), data<int64_t>(clipped), data<float>(there.grad_scale));
    return 0;
  }
  const Tensor applies = applies_of(there), g = memory.grad * there.grad_scale, before = masters_on_device(memory);
  const Tensor m = exp_avg + (g - exp_avg) * (1.0f - rule.beta1), ratio = m / (hessian * rule.rho + 1e-15f);
  const Tensor step = ratio.clamp(-1, 1);
  clipped.add_((step != ratio).logical_and(applies).sum());
  set_where(applies, exp_avg, m);
  clear_where(applies, memory.grad);
  store_on_device(memory, before, before * (1.0f - rule.lr * rule.weight_decay) - step * rule.lr, there);
  return 0;
}

int64_t subtract(double keep, double factor, const Tensor& rate, const UpdateMemory& memory, const OnDevice& there) {
  if (on_host(memory)) {
    auto* direction = pointer<float>(memory.grad);
    const auto kept = static_cast<float>(keep),
               step = static_cast<float>(factor * (rate.defined() ? double{rate.item<float>()} : 1.0));
    std::atomic<int64_t> changed{0};
    for_rows(memory.grad.numel(), 1, [&](int64_t at, int64_t end) {
      changed += kernels::subtract(kept, step, masters_of(memory).at(at), direction + at, end - at);
    });
    return changed;
  }
  if (has_kernels(memory)) {
    kernels::cuda::subtract(device::OnStream(memory.grad), static_cast<float>(keep), factor, data<float>(rate),
                            masters_there(memory), data<float>(memory.grad), memory.grad.numel(),
                            data<int64_t>(there.changed), data<float>(there.grad_scale));
    return 0;
  }
  const Tensor before = masters_on_device(memory);
  const Tensor step = rate.defined() ? memory.grad * (rate * factor).to(at::kFloat) : memory.grad * factor;
  store_on_device(memory, before, before * keep - step, there);
  clear_where(applies_of(there), memory.grad);
  return 0;
}

void scale(const Tensor& factors, const UpdateMemory& memory, const OnDevice& there) {
  if (on_host(memory)) {
    subtract(double{factors.item<float>()}, 0, {}, memory, there);
    return;
  }
  const Tensor before = masters_on_device(memory), counted = there.changed.clone();
  store_on_device(memory, before, before * factors, there);
  there.changed.copy_(counted);  // an update counts a weight once
}

void lamb_direction(const kernels::LambStep& rule, const UpdateMemory& memory, const Tensor& exp_avg,
                    const Tensor& exp_avg_sq, const Tensor& squares, const OnDevice& there) {
  if (on_host(memory)) {
    constexpr int64_t kBlock = int64_t{1} << 15;  // 128 KiB of fp32 in each of four streams
    const int64_t n = memory.grad.numel(), blocks = (n + kBlock - 1) / kBlock;
    auto *m = pointer<float>(exp_avg), *v = pointer<float>(exp_avg_sq), *grad = pointer<float>(memory.grad);
    std::vector<kernels::LambSums> sums(static_cast<size_t>(blocks));
    for_rows(blocks, kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t at = b * kBlock, count = std::min(kBlock, n - at);
        sums[static_cast<size_t>(b)] =
            kernels::lamb_direction(rule, masters_of(memory).at(at), m + at, v + at, grad + at, count);
      }
    });
    auto* square = squares.data_ptr<double>();
    for (const auto& [weights, directions] : sums) square[0] += weights, square[1] += directions;
    return;
  }
  if (has_kernels(memory)) {
    const int64_t n = memory.grad.numel();
    const Tensor partials = at::empty({kernels::cuda::lamb_partials(n)}, squares.options());
    kernels::cuda::lamb_direction(device::OnStream(memory.grad), rule, masters_there(memory), data<float>(exp_avg),
                                  data<float>(exp_avg_sq), data<float>(memory.grad), n, data<double>(partials),
                                  data<double>(squares), data<float>(there.grad_scale));
    return;
  }
  const Tensor applies = applies_of(there), g = memory.grad * there.grad_scale, w = masters_on_device(memory);
  const Tensor m = exp_avg + (g - exp_avg) * static_cast<float>(1 - rule.beta1);
  const Tensor v = exp_avg_sq * static_cast<float>(rule.beta2) + g * static_cast<float>(1 - rule.beta2) * g;
  const Tensor root = v.sqrt() * (1.0f / std::sqrt(rule.bias_correction2)) + rule.eps;
  const Tensor u = m * (1.0f / rule.bias_correction1) / root + w * rule.weight_decay;
  set_where(applies, exp_avg, m);
  set_where(applies, exp_avg_sq, v);
  set_where(applies, memory.grad, u);
  squares.add_(at::stack({w.to(at::kDouble).square().sum(), u.to(at::kDouble).square().sum()}));
}

void add_squares(double beta, double tokens, const Tensor& grad, const Tensor& hessian) {
  const auto kept = static_cast<float>(beta), count = static_cast<float>(tokens);
  if (!grad.is_cpu() && device::has_kernels(grad)) {
    kernels::cuda::add_squares(device::OnStream(grad), kept, count, data<float>(grad), data<float>(hessian),
                               grad.numel());
    return;
  }
  if (!grad.is_cpu()) {
    hessian.mul_(kept).add_((grad * count) * grad, 1.0f - kept);
    return;
  }
  const auto* g = pointer<float>(grad);
  auto* h = pointer<float>(hessian);
  for_rows(grad.numel(), 1,
           [&](int64_t at, int64_t end) { kernels::add_squares(kept, count, g + at, h + at, end - at); });
}

void momentum_direction(const kernels::MomentumStep& rule, const Tensor& grad, const Tensor& momentum,
                        const OnDevice& there) {
  if (grad.is_cpu()) {
    auto *m = pointer<float>(momentum), *g = pointer<float>(grad);
    for_rows(grad.numel(), 1,
             [&](int64_t at, int64_t end) { kernels::momentum_direction(rule, m + at, g + at, end - at); });
    return;
  }
  if (device::has_kernels(grad)) {
    kernels::cuda::momentum_direction(device::OnStream(grad), rule, data<float>(momentum), data<float>(grad),
                                      grad.numel(), data<float>(there.grad_scale));
    return;
  }
  const Tensor applies = applies_of(there), g = grad * there.grad_scale;
  const Tensor m = momentum + (g - momentum) * (1.0f - rule.momentum);
  set_where(applies, momentum, m);
  set_where(applies, grad, rule.nesterov ? g + (m - g) * rule.momentum : m);
}

}  // namespace athanor::ops
