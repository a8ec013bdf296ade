#include "verify/replay/rounded_iteration.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "config/precision.h"

namespace athanor::inline verify {
namespace {

using at::Tensor;

constexpr int64_t kDraws = 8;
constexpr double kUnit = 0x1p-24, kLeastNorm = 1e-7;

// Rounds all matrices of all draws, [1 + kDraws, count, …]: those of the first to nearest, those of the others up or
// down.
class Rounding {
 public:
  explicit Rounding(bool bf16) : bits_(bf16 ? 8 : 24) {}

  /// @param spread  of the same shape: how far each value may be off before it is rounded.
  void round(const Tensor& values, const Tensor& spread) {
    auto* value = values.data_ptr<double>();
    const auto* off = spread.const_data_ptr<double>();
    const int64_t n = values.numel(), nearest = n / (1 + kDraws);
    for (int64_t i = 0; i < nearest; ++i) value[i] = rounded(value[i], [](double x) { return std::nearbyint(x); });
    for (int64_t i = nearest; i < n; ++i) {
      const auto index = static_cast<uint64_t>(used_ + 2 * i);
      const double moved = value[i] + off[i] * (2 * random_.uniform(index) - 1), up = random_.uniform(index + 1);
      value[i] = rounded(moved, [up](double x) { return std::floor(x + up); });
    }
    used_ += 2 * n;
  }

 private:
  template <class F>
  double rounded(double x, F to_whole) const {
    if (x == 0) return 0;
    int exponent = 0;
    std::frexp(x, &exponent);
    return std::ldexp(to_whole(std::ldexp(x, bits_ - exponent)), exponent - bits_);
  }

  int bits_;
  int64_t used_ = 0;
  CounterRandom random_{1, "rounding of a replay"};
};

// A sum of n products, and how far fp32 may be off in it: n roundings of partial sums, which are as large as the sum or
// as what terms of random signs add up to.
struct Sums {
  Tensor value, spread;
};
Sums multiply_all(const Tensor& a, const Tensor& b) {
  const Tensor value = at::bmm(a, b), squares = at::bmm(a.square(), b.square());
  return {value, (value.square() + squares).sqrt() * (kUnit * std::sqrt(static_cast<double>(a.size(2))))};
}

// One triangle is computed.
Tensor symmetric(const Tensor& x) { return x.tril() + x.tril(-1).transpose(1, 2); }

Tensor tensor_of(const std::vector<double>& values, const Matrices& m) {
  const Tensor all = at::tensor(values, at::kDouble).view({m.count, m.rows, m.columns});
  return (m.rows > m.columns ? all.transpose(1, 2) : all).contiguous();
}

std::vector<double> norms_of(const Tensor& matrices) {
  const Tensor norms = at::linalg_vector_norm(matrices.flatten(1), 2, at::IntArrayRef{1}).contiguous();
  return {norms.const_data_ptr<double>(), norms.const_data_ptr<double>() + norms.numel()};
}

}  // namespace

RoundedResult orthogonalize_rounded(const Matrices& given, const OptimizerConfig& config) {
  const at::NoGradGuard no_grad;
  const auto coefficient = [&](size_t i) { return double{static_cast<float>(config.newton_schulz_coefficients[i])}; };
  const double a = coefficient(0), b = coefficient(1), c = coefficient(2);
  Rounding rounding(orthogonalize_type(config) == NumberType::kBFloat16);
  const Tensor direction = tensor_of(given.values, given), error = tensor_of(given.errors, given);
  const Tensor norm = at::linalg_vector_norm(direction, 2, at::IntArrayRef{1, 2}, true).clamp_min(kLeastNorm);
  const auto for_draws = [](const Tensor& x) { return x.repeat({1 + kDraws, 1, 1}); };
  // The reciprocal of the norm and its product are rounded.
  Tensor x = for_draws(direction / norm);
  rounding.round(x, for_draws(error / norm + (direction / norm).abs() * (2 * kUnit)));
  const Tensor identity = at::eye(x.size(1), at::kDouble);
  for (int64_t step = 0; step < config.newton_schulz_steps; ++step) {
    const auto [products, spread] = multiply_all(x, x.transpose(1, 2));
    rounding.round(products, spread);
    const Tensor gram = symmetric(products);
    const auto [square, square_spread] = multiply_all(gram, gram);
    const Tensor terms = gram * b + square * c + identity * a;
    rounding.round(terms, square_spread * std::abs(c) +
                              ((gram * b).abs() + (square * c).abs() + identity * std::abs(a)) * (2 * kUnit));
    const auto [next, next_spread] = multiply_all(symmetric(terms), x);
    rounding.round(next, next_spread);
    x = next;
  }
  const Tensor all = x.view({1 + kDraws, given.count, x.size(1), x.size(2)}), nearest = all[0];
  const Tensor off = (all.narrow(0, 1, kDraws) - nearest).transpose(0, 1);
  RoundedResult result;
  result.deviations = norms_of(off);
  for (double& deviation : result.deviations) deviation /= std::sqrt(static_cast<double>(kDraws));
  const Tensor values = (given.rows > given.columns ? nearest.transpose(1, 2) : nearest).contiguous();
  result.values.assign(values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel());
  return result;
}

}  // namespace athanor::inline verify
