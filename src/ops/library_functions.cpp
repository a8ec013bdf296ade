#include "ops/library_functions.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/tensor.h"

namespace athanor::ops {
namespace {

// A few units in the last place of fp32; the wrong values are off by 1e-4.
constexpr double kMostError = 1e-6;

using Ours = double (*)(double);
using Theirs = Tensor (*)(const Tensor&);

bool is_right(Theirs theirs, Ours ours, at::ScalarType dtype) {
  const Tensor x = at::arange(1, 17, at::TensorOptions(dtype)) / 16, in = x.to(at::kDouble),
               out = theirs(x).to(at::kDouble);
  for (int64_t i = 0; i < in.numel(); ++i) {
    const double expected = ours(in.data_ptr<double>()[i]);
    const double error = std::abs(out.data_ptr<double>()[i] - expected);
    if (!(error <= kMostError * std::max(1.0, std::abs(expected)))) return false;
  }
  return true;
}

void start(const char* name, Theirs theirs, Ours ours) {
  constexpr int kMostCalls = 100;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    int call = 0;
    while (!is_right(theirs, ours, dtype))
      ATHANOR_CHECK_AS(Error, ++call < kMostCalls, "libtorch's {} is off by more than {} on this machine", name,
                       kMostError);
  }
}

bool start_all() {
  const at::NoGradGuard no_grad;
  start(
      "exp", [](const Tensor& x) { return x.exp(); }, [](double x) { return std::exp(x); });
  start(
      "expm1", [](const Tensor& x) { return x.expm1(); }, [](double x) { return std::expm1(x); });
  start(
      "log", [](const Tensor& x) { return x.log(); }, [](double x) { return std::log(x); });
  start(
      "log1p", [](const Tensor& x) { return x.log1p(); }, [](double x) { return std::log1p(x); });
  start(
      "cos", [](const Tensor& x) { return x.cos(); }, [](double x) { return std::cos(x); });
  start(
      "sin", [](const Tensor& x) { return x.sin(); }, [](double x) { return std::sin(x); });
  start(
      "tanh", [](const Tensor& x) { return x.tanh(); }, [](double x) { return std::tanh(x); });
  return true;
}

}  // namespace

void start_library_functions() { [[maybe_unused]] static const bool started = start_all(); }

}  // namespace athanor::ops
