#include "ops/cross_entropy_parts.h"

#include <limits>

#include "kernels/cross_entropy.h"
#include "ops/device.h"
#include "ops/library_functions.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

// Calls f(logits, targets, begin, rows) for ranges of rows, on all threads.
template <class F>
void for_logits(const LogitsPart& part, F f) {
  const auto* targets = pointer<int64_t>(part.targets);
  with_element(part.logits, [&](auto* tag) {
    auto* logits = pointer<std::decay_t<decltype(*tag)>>(part.logits);
    for_rows(part.rows(), part.width(), [&](int64_t begin, int64_t end) {
      f(logits + begin * part.width(), targets + begin, begin, end - begin);
    });
  });
}

// Columns of the targets on this rank, [rows, 1], and whether they have one here.
struct Columns {
  Tensor offset, is_here, index;
};
Columns columns_of(const LogitsPart& part) {
  const Tensor offset = (part.targets - part.first).unsqueeze(1);
  const Tensor is_here = (offset >= 0).logical_and(offset < part.width()).logical_and(part.has_target().unsqueeze(1));
  return {offset, is_here, offset.masked_fill(is_here.logical_not(), 0)};
}

}  // namespace

Tensor LogitsPart::has_target() const { return targets != kernels::kNoTarget; }

void row_maxima_into(const LogitsPart& part, const Tensor& maxima) {
  if (device::takes(part.logits)) return portable::row_maxima_into(part, maxima);
  if (played("row_maxima", {part.logits, part.targets}, {maxima})) return;
  float* maximum = pointer<float>(maxima);
  for_logits(part, [&](auto* logits, const int64_t* targets, int64_t begin, int64_t rows) {
    kernels::row_maxima(logits, targets, maximum + begin, rows, part.width());
  });
}

void exp_sums_into(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, const Tensor& at_target,
                   const Tensor& earlier) {
  if (device::takes(part.logits)) return portable::exp_sums_into(part, maxima, sums, at_target, earlier);
  if (played("exp_sums", {part.logits, part.targets, maxima}, {sums, at_target, earlier})) return;
  const float* maximum = pointer<float>(maxima);
  float *sum = pointer<float>(sums), *at = pointer<float>(at_target);
  float* before = earlier.defined() ? pointer<float>(earlier) : nullptr;
  for_logits(part, [&](auto* logits, const int64_t* targets, int64_t begin, int64_t rows) {
    kernels::exp_sums(logits, targets, maximum + begin, sum + begin, at + begin, before ? before + begin : nullptr,
                      rows, part.width(), part.first);
  });
}

void to_softmax_gradient(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, double grad_scale) {
  if (device::takes(part.logits)) return portable::to_softmax_gradient(part, maxima, sums, grad_scale);
  if (played("softmax_gradient", {part.logits, part.targets, maxima, sums}, {part.logits})) return;
  const float *maximum = pointer<float>(maxima), *sum = pointer<float>(sums);
  for_logits(part, [&](auto* logits, const int64_t* targets, int64_t begin, int64_t rows) {
    kernels::softmax_gradient(logits, targets, maximum + begin, sum + begin, rows, part.width(), part.first,
                              static_cast<float>(grad_scale));
  });
}

namespace portable {

void row_maxima_into(const LogitsPart& part, const Tensor& maxima) {
  const double none = -std::numeric_limits<double>::infinity();
  Tensor out = maxima;
  out.fill_(none);
  if (part.width() == 0) return;
  out.copy_(part.logits.amax(1).to(at::kFloat).masked_fill(part.has_target().logical_not(), none));
}

void exp_sums_into(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, const Tensor& at_target,
                   const Tensor& earlier) {
  const auto [offset, is_here, index] = columns_of(part);
  const Tensor wide = part.logits.to(at::kFloat), peak = maxima.unsqueeze(1), has_target = part.has_target();
  Tensor sum = sums, at = at_target, before = earlier;
  start_library_functions();
  sum.copy_((wide - peak).exp().sum(1).masked_fill(has_target.logical_not(), 0));
  at.zero_();
  if (part.width() > 0) at.copy_(wide.gather(1, index).masked_fill(is_here.logical_not(), 0).squeeze(1));
  if (!before.defined()) return;
  const Tensor is_below = at::arange(part.width(), offset.options()).unsqueeze(0) < offset;
  before.copy_((wide >= peak).logical_and(is_below).any(1).logical_and(has_target));
}

void to_softmax_gradient(const LogitsPart& part, const Tensor& maxima, const Tensor& sums, double grad_scale) {
  const auto [offset, is_here, index] = columns_of(part);
  start_library_functions();
  Tensor softmax = (part.logits.to(at::kFloat) - maxima.unsqueeze(1)).exp() / sums.unsqueeze(1), logits = part.logits;
  if (part.width() > 0) softmax = softmax.scatter_add(1, index, is_here.to(at::kFloat).neg());
  logits.copy_((softmax * grad_scale).masked_fill(part.has_target().logical_not().unsqueeze(1), 0));
}

}  // namespace portable
}  // namespace athanor::ops
