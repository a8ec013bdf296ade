#include "ops/lamb.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/cuda/lamb.h"
#include "ops/device/on_stream.h"
#include "ops/played.h"
#include "ops/transfer.h"

namespace athanor::ops {
namespace {

using device::data;
using kernels::kMatrixRun;
using kernels::MatrixPart;

static_assert(sizeof(MatrixPart) == 6 * sizeof(int64_t));

Tensor as_tensor(const void* numbers, size_t count) {
  return at::from_blob(const_cast<void*>(numbers), {static_cast<int64_t>(count)}, at::kLong);
}

// Calls visit(run, part, begin, end) for runs [from, to) in order: elements [begin, end) of the part.
template <class F>
void visit_runs(const MatrixParts& parts, int64_t from, int64_t to, F visit) {
  const auto& first = parts.first_run();
  auto index = static_cast<size_t>(std::ranges::upper_bound(first, from) - first.begin()) - 1;
  for (int64_t run = from; run < to; ++run) {
    while (run >= first[index + 1]) ++index;
    const MatrixPart& part = parts.parts()[index];
    const int64_t begin = (run - first[index]) * kMatrixRun;
    visit(run, part, begin, std::min(begin + kMatrixRun, part.size));
  }
}

kernels::cuda::MatrixParts parts_within(const MatrixParts& all, size_t first, size_t last) {
  return {reinterpret_cast<const MatrixPart*>(data<int64_t>(all.parts_there())) + first,
          data<int64_t>(all.first_run_there()) + first, static_cast<int64_t>(last - first),
          all.first_run()[last] - all.first_run()[first]};
}

UpdateMemory memory_of(const UpdateMemory& all, const MatrixPart& part) {
  const auto part_of = [&](const Tensor& x, int64_t begin) {
    return x.defined() ? x.narrow(0, begin, part.size) : Tensor();
  };
  return {part_of(all.weight, part.begin), part_of(all.master_low, part.low_begin), part_of(all.grad, part.begin)};
}

// The first pass on the host.
void find_directions(const kernels::LambStep& rule, const MatrixParts& parts, const UpdateMemory& memory,
                     const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& squares) {
  if (played("lamb_direction", {memory.weight, memory.master_low, exp_avg, exp_avg_sq, memory.grad},
             {memory.grad, exp_avg, exp_avg_sq}))
    return;
  auto *m = pointer<float>(exp_avg), *v = pointer<float>(exp_avg_sq), *grad = pointer<float>(memory.grad);
  const kernels::Masters masters = masters_here(memory);
  std::vector<kernels::LambSums> sums(static_cast<size_t>(parts.num_runs()));
  for_rows(parts.num_runs(), kMatrixRun, [&](int64_t from, int64_t to) {
    visit_runs(parts, from, to, [&](int64_t run, const MatrixPart& part, int64_t begin, int64_t end) {
      const int64_t state = part.state_begin + begin, flat = part.begin + begin;
      sums[static_cast<size_t>(run)] = kernels::lamb_direction(rule, masters.at(flat, part.low_begin + begin),
                                                               m + state, v + state, grad + flat, end - begin);
    });
  });
  auto* square = squares.data_ptr<double>();
  for (size_t i = 0; i < parts.parts().size(); ++i) {
    const MatrixPart& part = parts.parts()[i];
    if (!part.is_counted) continue;
    for (int64_t run = parts.first_run()[i]; run < parts.first_run()[i + 1]; ++run) {
      square[2 * part.matrix] += sums[static_cast<size_t>(run)].weights;
      square[2 * part.matrix + 1] += sums[static_cast<size_t>(run)].directions;
    }
  }
}

// The first pass in torch ops.
void find_directions_of(const MatrixPart& part, const kernels::LambStep& rule, const UpdateMemory& all,
                        const Tensor& all_exp_avg, const Tensor& all_exp_avg_sq, const Tensor& squares,
                        const OnDevice& there) {
  const UpdateMemory memory = memory_of(all, part);
  const Tensor exp_avg = all_exp_avg.narrow(0, part.state_begin, part.size),
               exp_avg_sq = all_exp_avg_sq.narrow(0, part.state_begin, part.size);
  const Tensor applies = there.applies(), g = memory.grad * there.grad_scale, w = join_masters(memory);
  const Tensor m = exp_avg + (g - exp_avg) * static_cast<float>(1 - rule.beta1);
  const Tensor v = exp_avg_sq * static_cast<float>(rule.beta2) + g * static_cast<float>(1 - rule.beta2) * g;
  const Tensor root = v.sqrt() * (1.0f / std::sqrt(rule.bias_correction2)) + rule.eps;
  const Tensor u = m * (1.0f / rule.bias_correction1) / root + w * rule.weight_decay;
  set_where(applies, exp_avg, m);
  set_where(applies, exp_avg_sq, v);
  set_where(applies, memory.grad, u);
  if (part.is_counted)
    squares[part.matrix].add_(at::stack({w.to(at::kDouble).square().sum(), u.to(at::kDouble).square().sum()}));
}

// The second pass on the host.
int64_t apply_here(double factor, const float* ratios, const MatrixParts& parts, int64_t begin, int64_t end,
                   const UpdateMemory& memory) {
  if (played("lamb_apply", {memory.weight, memory.master_low, memory.grad},
             {memory.weight, memory.master_low, memory.grad}))
    return 0;
  const kernels::Masters masters = masters_here(memory);
  auto* direction = pointer<float>(memory.grad);
  const auto [first, last] = parts.within(begin, end);
  const int64_t first_run = parts.first_run()[first], runs = parts.first_run()[last] - first_run;
  std::atomic<int64_t> changed{0};
  for_rows(runs, kMatrixRun, [&](int64_t from, int64_t to) {
    int64_t count = 0;
    visit_runs(parts, first_run + from, first_run + to, [&](int64_t, const MatrixPart& part, int64_t at, int64_t stop) {
      at = std::max(at, begin - part.begin), stop = std::min(stop, end - part.begin);
      if (at >= stop) return;
      const auto rate = static_cast<float>(factor * double{ratios[part.matrix]});
      count += kernels::update(kernels::SubtractRule{1, rate}, masters.at(part.begin + at, part.low_begin + at), {},
                               direction + part.begin + at, 1, stop - at)
                   .changed;
    });
    changed += count;
  });
  return changed;
}

// The second pass in torch ops, for what of a part lies in [begin, end) of flat memory.
void apply_to(MatrixPart part, double factor, const Tensor& ratios, int64_t begin, int64_t end, const UpdateMemory& all,
              const OnDevice& there) {
  const int64_t from = std::max(begin, part.begin), skipped = from - part.begin;
  part.size = std::min(end, part.begin + part.size) - from;
  part.begin += skipped, part.low_begin += skipped;
  const UpdateMemory memory = memory_of(all, part);
  const Tensor before = join_masters(memory), rate = ratios.narrow(0, part.matrix, 1).to(at::kDouble) * factor;
  store_masters(memory, before, before - memory.grad * rate.to(at::kFloat), there);
  set_where(there.applies(), memory.grad, at::zeros_like(memory.grad));
}

}  // namespace

MatrixParts::MatrixParts(std::vector<MatrixPart> parts, at::Device device)
    : parts_(std::move(parts)), first_run_(parts_.size() + 1) {
  ATHANOR_ASSERT(!parts_.empty() && std::ranges::is_sorted(parts_, {}, &MatrixPart::begin));
  for (size_t i = 0; i < parts_.size(); ++i) first_run_[i + 1] = first_run_[i] + kernels::matrix_runs(parts_[i].size);
  if (on_host(device)) return;
  parts_there_ = send(as_tensor(parts_.data(), parts_.size() * 6), device);
  first_run_there_ = send(as_tensor(first_run_.data(), first_run_.size()), device);
}

std::pair<size_t, size_t> MatrixParts::within(int64_t begin, int64_t end) const {
  const auto first = std::ranges::partition_point(parts_, [&](const auto& p) { return p.begin + p.size <= begin; });
  const auto last = std::partition_point(first, parts_.end(), [&](const auto& p) { return p.begin < end; });
  return {static_cast<size_t>(first - parts_.begin()), static_cast<size_t>(last - parts_.begin())};
}

void lamb_directions(const kernels::LambStep& rule, const MatrixParts& parts, const UpdateMemory& memory,
                     const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& squares, const OnDevice& there) {
  if (memory.on_host()) return find_directions(rule, parts, memory, exp_avg, exp_avg_sq, squares);
  if (!memory.has_kernels()) {
    for (const MatrixPart& part : parts.parts())
      find_directions_of(part, rule, memory, exp_avg, exp_avg_sq, squares, there);
    return;
  }
  const device::OnStream stream(memory.grad);
  const auto all = parts_within(parts, 0, parts.parts().size());
  const Tensor partials = at::empty({parts.num_runs(), 2}, squares.options());
  kernels::cuda::lamb_directions(stream, rule, all, masters_there(memory), data<float>(exp_avg),
                                 data<float>(exp_avg_sq), data<float>(memory.grad), data<double>(partials),
                                 data<float>(there.grad_scale));
  kernels::cuda::add_lamb_partials(stream, all, data<double>(partials), data<double>(squares));
}

int64_t apply_lamb(double factor, const Tensor& ratios, const MatrixParts& parts, int64_t begin, int64_t end,
                   const UpdateMemory& memory, const OnDevice& there) {
  if (memory.on_host()) return apply_here(factor, pointer<float>(ratios), parts, begin, end, memory);
  const auto [first, last] = parts.within(begin, end);
  if (memory.has_kernels()) {
    kernels::cuda::apply_lamb(device::OnStream(memory.grad), factor, data<float>(ratios),
                              parts_within(parts, first, last), begin, end, masters_there(memory),
                              data<float>(memory.grad), data<int64_t>(there.changed), data<float>(there.grad_scale));
    return 0;
  }
  for (size_t i = first; i < last; ++i) apply_to(parts.parts()[i], factor, ratios, begin, end, memory, there);
  return 0;
}

}  // namespace athanor::ops
