#include "ops/device/sum_terms.h"

#include "kernels/cuda/dispatch.h"
#include "ops/device/on_stream.h"

namespace athanor::ops::device {
namespace {

Tensor sum_between(int64_t lo, int64_t hi, const std::function<Tensor(int64_t index)>& term) {
  if (hi - lo == 1) return term(lo);
  int64_t half = 1;
  while (half * 2 < hi - lo) half *= 2;
  const Tensor left = sum_between(lo, lo + half, term);
  return left + sum_between(lo + half, hi, term);
}

bool is_element(const Tensor& x) { return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16; }

}  // namespace

Tensor tree_sum(int64_t n, const std::function<Tensor(int64_t index)>& term) { return sum_between(0, n, term); }

namespace without_kernels {

void sum_terms(const Tensor& terms, const Tensor& out) {
  const at::ScalarType type = terms.element_size() <= 4 && terms.is_floating_point() ? at::kFloat : terms.scalar_type();
  out.copy_(tree_sum(terms.size(0), [&](int64_t i) { return terms[i].narrow(0, 0, out.size(0)).to(type); }));
}

}  // namespace without_kernels

void sum_terms(const Tensor& terms, const Tensor& out) {
  if (!has_kernels(terms) || !is_element(terms) || !is_element(out)) return without_kernels::sum_terms(terms, out);
  if (out.numel() == 0) return;
  // Rows of one term follow each other, so that T rows are one row of more elements if all are summed.
  const bool all_rows = out.size(0) == terms.size(1);
  const int64_t rows = all_rows ? 1 : out.size(0), width = out.numel() / rows;
  const kernels::cuda::PartialRows where{nullptr, 0, all_rows ? 1 : terms.size(1)};
  with_element(terms, [&](auto* from_tag) {
    with_element(out, [&](auto* to_tag) {
      using From = std::decay_t<decltype(*from_tag)>;
      using To = std::decay_t<decltype(*to_tag)>;
      kernels::cuda::sum_partials<From, To>(OnStream(terms), data<From>(terms), where, terms.size(0), data<To>(out),
                                            rows, width);
    });
  });
}

}  // namespace athanor::ops::device
