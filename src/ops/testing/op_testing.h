#pragma once
// Shared by the tests of ops: inputs, runs forward and backward, and comparisons.

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "ops/tensor.h"
#include "ops/testing/running_error.h"

namespace athanor::ops::test {

inline constexpr std::array kComputeTypes = {at::kFloat, at::kBFloat16};

inline std::string name_of(at::ScalarType dtype) { return c10::toString(dtype); }

/// Returns normal numbers from a separate generator.
inline Tensor normal(at::IntArrayRef shape, uint64_t seed, at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kFloat).to(dtype);
}

/// Returns a weight whose bucket already holds a value, so that a test sees that gradients are added.
inline Weight weight_of(const Tensor& value, double already = 0) {
  return {value, at::full(value.sizes(), already, at::kFloat)};
}

/// The results of an op: its output and the gradients of its inputs in the direction of dy.
struct Outcome {
  Tensor y;
  std::vector<Tensor> dx;
};

/// Runs f(inputs) forward and backward on copies of the inputs as leaves.
template <class F>
Outcome run(F f, const std::vector<Tensor>& inputs, const Tensor& dy) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) leaves.push_back(input.detach().clone().requires_grad_());
  const Tensor y = f(leaves);
  torch::autograd::backward({y}, {dy.to(y.scalar_type())});
  Outcome result{y.detach(), {}};
  for (const Tensor& leaf : leaves) result.dx.push_back(leaf.grad());
  return result;
}

/// Runs f in fp64: the portable forms' exact result.
template <class F>
Outcome run_fp64(F f, const std::vector<Tensor>& inputs, const Tensor& dy) {
  std::vector<Tensor> wide;
  for (const Tensor& input : inputs) wide.push_back(input.to(at::kDouble));
  return run(f, wide, dy.to(at::kDouble));
}

/// Expects each element of `actual` to be within its bound, which NaN is not.
inline void expect_within(const Tensor& actual, const Tensor& value, const Tensor& bound, const std::string& what) {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.sizes(), value.sizes()) << what;
  const Tensor off = (actual.detach().to(at::kDouble) - value).abs();
  const Tensor outside = (off <= bound).logical_not();
  const int64_t count = outside.sum().item<int64_t>();
  if (count == 0) return;
  const int64_t at = (off / bound).nan_to_num(1e300).view({-1}).argmax().item<int64_t>();
  ADD_FAILURE() << what << ": " << count << " of " << actual.numel() << " elements outside; element " << at << " is "
                << actual.reshape({-1})[at].item<double>() << ", expected " << value.reshape({-1})[at].item<double>()
                << " ± " << bound.expand_as(value).reshape({-1})[at].item<double>();
}
inline void expect_within(const Tensor& actual, const Tracked& expected, const std::string& what) {
  expect_within(actual, expected.value, expected.error, what);
}

/// An fp64 result agrees with the formula that a bound was derived from. fp64's roundoff is 2^-29 of fp32's: that share
/// of an fp32 bound bounds each of the two.
inline void expect_same_formula(const Tensor& fp64, const Tracked& expected, const std::string& what) {
  ASSERT_EQ(fp64.scalar_type(), at::kDouble) << what;
  expect_within(fp64, expected.value, expected.error * (2 * 0x1p-29), "portable " + what);
}

/// Returns the sum of `terms` products added to a bucket that held `already`. Products and bucket may be added in any
/// order, so each goes through one rounding for each term.
inline Tracked added_to(double already, const Tracked& product, int64_t terms) {
  return {product.value + already, product.error + error_bound(product.largest() + already, at::kFloat, terms)};
}

inline void expect_same_bits(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.scalar_type(), expected.scalar_type()) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const Tensor a = actual.contiguous(), b = expected.contiguous();  // not at::equal: to it −0 is 0, and NaN is not NaN
  EXPECT_EQ(a.nbytes() == 0 ? 0 : std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()), 0) << what << " differs";
}

/// Sets the number of threads during its lifetime.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace athanor::ops::test
