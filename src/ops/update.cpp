#include "ops/update.h"

#include <atomic>
#include <utility>

#include "kernels/cuda/update.h"
#include "ops/device/on_stream.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

using device::data;

template <class Rule>
using States = std::array<Tensor, Rule::kStates>;

template <class Rule, class Pointer>
kernels::RuleStates<Rule> pointers(const States<Rule>& states, Pointer pointer) {
  kernels::RuleStates<Rule> result;
  for (size_t k = 0; k < states.size(); ++k) result.at[k] = pointer(states[k]);
  return result;
}

// Reports the update to a play, if this is one.
template <class Rule>
bool played_update(const UpdateMemory& memory, const States<Rule>& states) {
  const auto state = [&](size_t k, int count) { return k < static_cast<size_t>(count) ? states[k] : Tensor(); };
  const Tensor first = state(0, Rule::kStates), second = state(1, Rule::kStates), updated = state(1, Rule::kUpdated);
  return played(Rule::kName, {memory.weight, memory.master_low, memory.grad, first, second},
                {memory.weight, memory.master_low, memory.grad, first, updated});
}

template <class Rule>
int64_t update_here(const Rule& rule, float grad_scale, const UpdateMemory& memory, const States<Rule>& states,
                    const Tensor& clipped) {
  if (played_update<Rule>(memory, states)) return 0;
  const auto at = pointers<Rule>(states, [](const Tensor& x) { return pointer<float>(x); });
  auto* grad = pointer<float>(memory.grad);
  std::atomic<int64_t> changed{0}, num_clipped{0};
  for_rows(memory.grad.numel(), 1, [&](int64_t begin, int64_t end) {
    const auto counts =
        kernels::update(rule, masters_here(memory).at(begin), at.from(begin), grad + begin, grad_scale, end - begin);
    changed += counts.changed;
    num_clipped += counts.clipped;
  });
  if (clipped.defined()) *clipped.data_ptr<int64_t>() += num_clipped;
  return changed;
}

template <class Rule>
void update_by_kernel(const Rule& rule, const UpdateMemory& memory, const States<Rule>& states, const OnDevice& there,
                      const Tensor& clipped) {
  kernels::cuda::update(device::OnStream(memory.grad), rule, masters_there(memory),
                        pointers<Rule>(states, [](const Tensor& x) { return data<float>(x); }),
                        data<float>(memory.grad), 1, memory.grad.numel(), data<int64_t>(there.changed),
                        clipped.defined() ? data<int64_t>(clipped) : nullptr, data<float>(there.grad_scale));
}

// The clip of rules for tensors.
struct NotedClip {
  Tensor& is_clipped;

  Tensor operator()(const Tensor& x) const {
    Tensor clipped = x.clamp(-1, 1);
    is_clipped = clipped != x;
    return clipped;
  }
};

template <class Rule, size_t... K>
void update_by_tensors(const Rule& rule, const UpdateMemory& memory, const States<Rule>& states, const OnDevice& there,
                       const Tensor& clipped, std::index_sequence<K...> /*states*/) {
  const Tensor applies = there.applies(), before = join_masters(memory),
               g = kernels::kTakesDirection<Rule> ? memory.grad : memory.grad * there.grad_scale;
  States<Rule> next = states;
  Tensor is_clipped;
  const Tensor after = rule(before, g, NotedClip{is_clipped}, next[K]...);
  for (size_t k = 0; k < Rule::kUpdated; ++k) set_where(applies, states[k], next[k]);
  if (clipped.defined()) clipped.add_(is_clipped.logical_and(applies).sum());
  store_masters(memory, before, after, there);
  set_where(applies, memory.grad, at::zeros_like(memory.grad));
}

}  // namespace

template <class Rule>
int64_t update(const Rule& rule, float grad_scale, const UpdateMemory& memory, const States<Rule>& states,
               const OnDevice& there, const Tensor& clipped) {
  if (memory.on_host()) return update_here(rule, grad_scale, memory, states, clipped);
  memory.has_kernels()
      ? update_by_kernel(rule, memory, states, there, clipped)
      : update_by_tensors(rule, memory, states, there, clipped, std::make_index_sequence<Rule::kStates>());
  return 0;
}
#define ATHANOR_UPDATE(Rule)                                                               \
  template int64_t update<kernels::Rule>(const kernels::Rule&, float, const UpdateMemory&, \
                                         const States<kernels::Rule>&, const OnDevice&, const Tensor&);
ATHANOR_FOR_EACH_UPDATE_RULE(ATHANOR_UPDATE)
#undef ATHANOR_UPDATE

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
    if (factor[group] != 1)
      update(kernels::SubtractRule{factor[group], 0}, 1, part_of(memory, begin - first, stop - begin), {}, {});
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
