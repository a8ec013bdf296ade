#pragma once
// Shared by the tests of comm: tensors of each rank, and an oracle for sums that implements their definition.

#include <ATen/ATen.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace athanor::comm {

/// Returns rank r's term number `call`: equal wherever it is asked for. Its elements span many powers of two, so that
/// the order of a sum shows in its bits.
inline Tensor term_of(int rank, int call, int64_t count, at::ScalarType type) {
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(rank * 1000 + call + 1));
  if (type == at::kLong) return at::randint(-1000, 1000, {count}, generator, at::kLong);
  const Tensor x =
      at::randn({count}, generator, at::kFloat) * at::exp2(at::randint(-6, 7, {count}, generator, at::kFloat));
  return x.to(type);
}

/// Returns sum(lo, hi) of wide terms, as communicator.h defines it.
inline Tensor tree_oracle(const std::vector<Tensor>& terms, size_t lo, size_t hi, bool max = false) {
  if (hi - lo == 1) return terms[lo];
  size_t step = 1;
  while (step * 2 < hi - lo) step *= 2;
  const Tensor left = tree_oracle(terms, lo, lo + step, max), right = tree_oracle(terms, lo + step, hi, max);
  return max ? at::maximum(left, right) : left + right;
}

inline Tensor wide(const Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf ? x.to(at::kFloat) : x;
}

/// Returns the reduction of the terms along the tree, in their type.
inline Tensor tree_of(const std::vector<Tensor>& terms, Reduction reduction) {
  std::vector<Tensor> wides;
  const auto n = static_cast<double>(terms.size());
  double up = 1;
  while (up < n) up *= 2;
  for (const Tensor& term : terms) wides.push_back(reduction == Reduction::kMean ? wide(term) * (1 / up) : wide(term));
  Tensor all = tree_oracle(wides, 0, wides.size(), reduction == Reduction::kMax);
  if (reduction == Reduction::kMean) all = all * (up / n);
  return all.to(terms[0].scalar_type());
}

/// Throws if `right` is false. gtest's assertions are not for several threads at once, so ranks report by exception.
inline void require(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         (a.nbytes() == 0 || std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0);
}

}  // namespace athanor::comm
