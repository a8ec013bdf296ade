#include "ops/matmul_timing.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>

#include "ops/attention.h"
#include "ops/grouped_matmul.h"
#include "ops/linear.h"
#include "ops/tiles.h"

namespace athanor::ops {
namespace {

// The first call compiles the library's kernels and touches memory; the shortest of the following calls counts.
constexpr int kCalls = 3;
constexpr double kWorthAChange = 1.1;
constexpr double kEnough_s = 0.03;  // a path this slow is measured once

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// One thread does all the work while this object lives, so that its time is the time of the work.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

struct Sample {
  double flops;
  std::function<void()> run;
};

Sample dense_sample(const SampleShape& s, at::TensorOptions options) {
  const Tensor x = at::full({s.tokens, s.hidden}, 0.5, options), w = at::full({s.hidden, s.hidden}, 0.5, options);
  const Tensor dw = at::zeros(w.sizes(), at::kFloat);
  return {6.0 * static_cast<double>(s.tokens * s.hidden * s.hidden), [=] {
            matmul(x, w, /*transposed=*/true);
            matmul(x, w, /*transposed=*/false);
            add_outer_product(dw, x, x);
          }};
}

Sample grouped_sample(const SampleShape& s, at::TensorOptions options) {
  const int64_t rows = s.rows * s.groups;
  GroupOffsets offsets;
  for (int64_t e = 0; e <= s.groups; ++e) offsets.push_back(e * s.rows);
  const Tensor x = at::full({rows, s.hidden}, 0.5, options), y = at::full({rows, s.width}, 0.5, options);
  const Tensor dx = at::empty_like(x), w = at::full({s.groups, s.width, s.hidden}, 0.5, options);
  const Tensor dw = at::zeros(w.sizes(), at::kFloat);
  return {6.0 * static_cast<double>(rows * s.hidden * s.width), [=] {
            grouped_matmul(offsets, {{x, w, true, y}});
            grouped_matmul(offsets, {{y, w, false, dx}});
            grouped_outer_product(offsets, {{y, x, dw}});
          }};
}

Sample attention_sample(const SampleShape& s, at::TensorOptions options) {
  const auto leaf = [&] { return at::full({1, s.length, s.heads, s.head_dim}, 0.5, options).requires_grad_(true); };
  const Tensor q = leaf(), k = leaf(), v = leaf(), dout = at::full(q.sizes(), 0.5, options);
  // The work of the causal half: two products forward, five backward.
  const double flops = 7.0 * static_cast<double>(s.heads * s.length * s.length * s.head_dim);
  return {flops, [=] { torch::autograd::grad({attention(q, k, v, {})}, {q, k, v}, {dout}); }};
}

Sample sample_of(ProductKind kind, const SampleShape& s, at::TensorOptions options) {
  switch (kind) {
    case ProductKind::kDense: return dense_sample(s, options);
    case ProductKind::kGrouped: return grouped_sample(s, options);
    case ProductKind::kAttention: break;
  }
  return attention_sample(s, options);
}

// Returns the paths that multiply this kind of product in this type.
std::vector<MatmulPath> paths_of(at::ScalarType type, ProductKind kind) {
  std::vector<MatmulPath> paths;
  for (const MatmulPath path : kernels::paths_here()) {
    if (all_on(path).of(type)[kind] == path) paths.push_back(path);
  }
  return paths;
}

// Returns the least time of each path. They are measured alternately, so that a change of the clock affects all of
// them.
std::vector<double> least_seconds(const Sample& sample, const std::vector<MatmulPath>& paths) {
  std::vector<double> least(paths.size(), std::numeric_limits<double>::infinity());
  for (int call = 0; call <= kCalls; ++call) {
    for (size_t i = 0; i < paths.size(); ++i) {
      if (least[i] < std::numeric_limits<double>::infinity() && least[i] > kEnough_s) continue;
      set_matmul_paths(all_on(paths[i]));
      const double start = thread_seconds();
      sample.run();
      if (call > 0) least[i] = std::min(least[i], thread_seconds() - start);
    }
  }
  return least;
}

}  // namespace

const char* name_of(ProductKind kind) {
  return kind == ProductKind::kDense ? "dense" : kind == ProductKind::kGrouped ? "grouped" : "attention";
}

SampleShape sample_shape(int64_t tokens, int64_t hidden, int64_t width, int64_t rows_of_expert, int64_t head_dim,
                         int64_t seq_len) {
  const SampleShape most;
  SampleShape s;
  s.tokens = std::min(tokens, most.tokens);
  s.hidden = std::min(hidden, most.hidden);
  s.width = std::min(width, most.width);
  s.rows = std::clamp<int64_t>(rows_of_expert, 8, most.tokens);
  s.groups = std::clamp<int64_t>(most.tokens / s.rows, 1, most.groups);
  s.head_dim = head_dim;
  s.length = std::min(seq_len, most.length);
  return s;
}

std::vector<PathRate> measure_matmul_paths(at::ScalarType type, const std::vector<ProductKind>& kinds,
                                           const SampleShape& shape) {
  const MatmulPaths held = matmul_paths();
  const OneThread one_thread;
  std::vector<PathRate> rates;
  for (const ProductKind kind : kinds) {
    const Sample sample = sample_of(kind, shape, at::TensorOptions(type));
    const auto paths = paths_of(type, kind);
    const auto least = least_seconds(sample, paths);
    for (size_t i = 0; i < paths.size(); ++i) rates.push_back({kind, paths[i], 1e-9 * sample.flops / least[i]});
  }
  set_matmul_paths(held);
  return rates;
}

MatmulPaths::OfType fastest_paths(const std::vector<PathRate>& rates, MatmulPaths::OfType otherwise) {
  MatmulPaths::OfType fastest = otherwise;
  for (const ProductKind kind : {ProductKind::kDense, ProductKind::kGrouped, ProductKind::kAttention}) {
    double most = 0, of_default = 0;
    MatmulPath best = otherwise[kind];
    for (const PathRate& rate : rates) {
      if (rate.kind != kind) continue;
      if (rate.path == otherwise[kind]) of_default = rate.gflops;
      if (rate.gflops > most) most = rate.gflops, best = rate.path;
    }
    if (most >= kWorthAChange * of_default) fastest[kind] = best;
  }
  return fastest;
}

}  // namespace athanor::ops
