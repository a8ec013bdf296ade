#include "ops/update.h"

#include <atomic>

#include "kernels/cuda/update.h"
#include "ops/device/on_stream.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using device::data;

void clear_where(const Tensor& applies, const Tensor& to) { set_where(applies, to, at::zeros_like(to)); }

}  // namespace

int64_t sgd(const kernels::SgdStep& rule, const UpdateMemory& memory, const Tensor& momentum, const OnDevice& there) {
  if (memory.on_host()) {
    if (played("sgd", {memory.weight, memory.master_low, momentum, memory.grad},
               {memory.weight, memory.master_low, momentum, memory.grad}))
      return 0;
    auto *m = pointer<float>(momentum), *grad = pointer<float>(memory.grad);
    std::atomic<int64_t> changed{0};
    for_rows(memory.grad.numel(), 1, [&](int64_t begin, int64_t end) {
      changed += kernels::sgd(rule, masters_here(memory).at(begin), m + begin, grad + begin, end - begin);
    });
    return changed;
  }
  if (memory.has_kernels()) {
    kernels::cuda::sgd(device::OnStream(memory.grad), rule, masters_there(memory), data<float>(momentum),
                       data<float>(memory.grad), memory.grad.numel(), data<int64_t>(there.changed),
                       data<float>(there.grad_scale));
    return 0;
  }
  const Tensor applies = there.applies(), g = memory.grad * there.grad_scale, before = join_masters(memory);
  const Tensor m = momentum * rule.momentum + g, step = rule.nesterov ? g + m * rule.momentum : m;
  set_where(applies, momentum, m);
  clear_where(applies, memory.grad);
  store_masters(memory, before, before * (1.0f - rule.lr * rule.weight_decay) - step * rule.lr, there);
  return 0;
}

int64_t sophia(const kernels::SophiaStep& rule, const UpdateMemory& memory, const Tensor& exp_avg,
               const Tensor& hessian, const Tensor& clipped, const OnDevice& there) {
  if (memory.on_host()) {
    if (played("sophia", {memory.weight, memory.master_low, exp_avg, hessian, memory.grad},
               {memory.weight, memory.master_low, exp_avg, memory.grad}))
      return 0;
    auto *m = pointer<float>(exp_avg), *grad = pointer<float>(memory.grad);
    const auto* h = pointer<float>(hessian);
    std::atomic<int64_t> changed{0}, num_clipped{0};
    for_rows(memory.grad.numel(), 1, [&](int64_t begin, int64_t end) {
      const auto counts =
          kernels::sophia(rule, masters_here(memory).at(begin), m + begin, h + begin, grad + begin, end - begin);
      changed += counts.changed;
      num_clipped += counts.clipped;
    });
    *clipped.data_ptr<int64_t>() += num_clipped;
    return changed;
  }
  if (memory.has_kernels()) {
    kernels::cuda::sophia(device::OnStream(memory.grad), rule, masters_there(memory), data<float>(exp_avg),
                          data<float>(hessian), data<float>(memory.grad), memory.grad.numel(),
                          data<int64_t>(there.changed), data<int64_t>(clipped), data<float>(there.grad_scale));
    return 0;
  }
  const Tensor applies = there.applies(), g = memory.grad * there.grad_scale, before = join_masters(memory);
  const Tensor m = exp_avg + (g - exp_avg) * (1.0f - rule.beta1), ratio = m / (hessian * rule.rho + 1e-15f);
  const Tensor step = ratio.clamp(-1, 1);
  clipped.add_((step != ratio).logical_and(applies).sum());
  set_where(applies, exp_avg, m);
  clear_where(applies, memory.grad);
  store_masters(memory, before, before * (1.0f - rule.lr * rule.weight_decay) - step * rule.lr, there);
  return 0;
}

int64_t subtract(float keep, float rate, const UpdateMemory& memory, const OnDevice& there) {
  if (memory.on_host()) {
    if (played("subtract", {memory.weight, memory.master_low, memory.grad},
               {memory.weight, memory.master_low, memory.grad}))
      return 0;
    auto* direction = pointer<float>(memory.grad);
    std::atomic<int64_t> changed{0};
    for_rows(memory.grad.numel(), 1, [&](int64_t begin, int64_t end) {
      changed += kernels::subtract(keep, rate, masters_here(memory).at(begin), direction + begin, end - begin);
    });
    return changed;
  }
  if (memory.has_kernels()) {
    kernels::cuda::subtract(device::OnStream(memory.grad), keep, rate, masters_there(memory), data<float>(memory.grad),
                            memory.grad.numel(), data<int64_t>(there.changed), data<float>(there.grad_scale));
    return 0;
  }
  const Tensor before = join_masters(memory);
  store_masters(memory, before, before * keep - memory.grad * rate, there);
  clear_where(there.applies(), memory.grad);
  return 0;
}

namespace {

UpdateMemory part_of(const UpdateMemory& memory, int64_t begin, int64_t count) {
  return {memory.weight.narrow(0, begin, count),
          memory.master_low.defined() ? memory.master_low.narrow(0, begin, count) : Tensor(),
          memory.grad.narrow(0, begin, count)};
}

void scale_on_host(const Tensor& factors, int64_t size, int64_t first, const UpdateMemory& memory) {
  const float* factor = pointer<float>(factors);
  const int64_t end = first + memory.grad.numel();
  for (int64_t group = first / size; group * size < end; ++group) {
    const int64_t begin = std::max(first, group * size), stop = std::min(end, (group + 1) * size);
    if (factor[group] != 1) subtract(factor[group], 0, part_of(memory, begin - first, stop - begin), {});
  }
}

}  // namespace

void scale_groups(const Tensor& factors, int64_t size, int64_t first, const UpdateMemory& memory,
                  const OnDevice& there) {
  if (memory.on_host()) return scale_on_host(factors, size, first, memory);
  const Tensor element = at::arange(first, first + memory.grad.numel(), factors.options().dtype(at::kLong));
  const Tensor before = join_masters(memory), counted = there.changed.clone();
  store_masters(memory, before, before * factors.index_select(0, element.div(size, "floor")), there);
  there.changed.copy_(counted);  // an update counts a weight once
}

void add_squares(double beta, double tokens, const Tensor& grad, const Tensor& hessian) {
  const auto kept = static_cast<float>(beta), count = static_cast<float>(tokens);
  if (!on_host(grad) && device::has_kernels(grad)) {
    kernels::cuda::add_squares(device::OnStream(grad), kept, count, data<float>(grad), data<float>(hessian),
                               grad.numel());
    return;
  }
  if (!on_host(grad)) {
    hessian.mul_(kept).add_((grad * count) * grad, 1.0f - kept);
    return;
  }
  if (played("add_squares", {grad, hessian}, {hessian})) return;
  const auto* g = pointer<float>(grad);
  auto* h = pointer<float>(hessian);
  for_rows(grad.numel(), 1,
           [&](int64_t begin, int64_t end) { kernels::add_squares(kept, count, g + begin, h + begin, end - begin); });
}

void momentum_direction(const kernels::MomentumStep& rule, const Tensor& grad, const Tensor& momentum,
                        const OnDevice& there) {
  if (on_host(grad)) {
    if (played("momentum_direction", {grad, momentum}, {grad, momentum})) return;
    auto *m = pointer<float>(momentum), *g = pointer<float>(grad);
    for_rows(grad.numel(), 1,
             [&](int64_t begin, int64_t end) { kernels::momentum_direction(rule, m + begin, g + begin, end - begin); });
    return;
  }
  if (device::has_kernels(grad)) {
    kernels::cuda::momentum_direction(device::OnStream(grad), rule, data<float>(momentum), data<float>(grad),
                                      grad.numel(), data<float>(there.grad_scale));
    return;
  }
  const Tensor applies = there.applies(), g = grad * there.grad_scale;
  const Tensor m = momentum + (g - momentum) * (1.0f - rule.momentum);
  set_where(applies, momentum, m);
  set_where(applies, grad, rule.nesterov ? g + (m - g) * rule.momentum : m);
}

}  // namespace athanor::ops
