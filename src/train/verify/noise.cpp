#include "train/verify/noise.h"

#include <algorithm>
#include <cmath>

#include "config/families.h"

namespace athanor {
namespace {

constexpr double kGain = 2, kTwoRuns = 1.4142135623730951;
constexpr double kUnit32 = 0x1p-24, kUnit16 = 0x1p-8;
constexpr int64_t kFewRoundings = 8;  // an activation function, a rotation

// Operations by their inner lengths.
struct Chain {
  double roundings = 0, operations = 0;

  void add(int64_t length) {
    roundings += static_cast<double>(length);
    operations += 1;
  }
  /// A sum that `ranks` ranks make: each part is rounded before it travels, each sum on the way up the tree after.
  void add_over(int64_t ranks) {
    if (ranks == 1) return;
    add(1);
    for (int64_t joined = 1; joined < ranks; joined *= 2) add(1);
  }
  /// Of the relative error: sums in fp32, results stored with `unit`.
  double variance(double unit) const { return (roundings * kUnit32 * kUnit32 + operations * unit * unit) / 3; }
};

// The lengths of a layer's products and sums; `back`: of their transposed forms. What one rank adds up in one product,
// tensor ranks add up in two steps, and round between: leaving attention and the feed-forward layer in forward,
// entering them in backward, and in both for the norm of queries and keys over all heads.
void add_layer(const RunConfig& config, int64_t layer, bool back, Chain& chain) {
  const ModelConfig& m = config.model;
  const int64_t seq_len = config.data.seq_len, tensor = config.parallelism.tensor_parallel_degree;
  const int64_t width = m.hidden_size, heads = m.num_attention_heads * m.head_dim(),
                projected = heads + 2 * m.kv_heads() * m.head_dim();
  chain.add(width);                     // norm
  chain.add(back ? projected : width);  // queries, keys, values
  if (family_of(m).qk_norm != QkNorm::kNone) chain.add(heads);
  if (family_of(m).qk_norm == QkNorm::kWhole) chain.add_over(tensor);
  chain.add(kFewRoundings);                  // rotation
  chain.add(back ? seq_len : m.head_dim());  // scores
  chain.add(seq_len);                        // softmax
  chain.add(back ? m.head_dim() : seq_len);  // weighted values
  chain.add(back ? width : heads);           // output projection
  chain.add_over(tensor);
  chain.add(1);      // residual
  chain.add(width);  // norm
  const bool sparse = m.is_sparse_layer(layer);
  const int64_t inner = sparse ? m.expert_intermediate_size() + m.shared_intermediate_size() : m.intermediate_size;
  if (sparse) {
    chain.add(back ? m.num_experts : width);  // router
    chain.add(m.num_experts);                 // scores
    chain.add(m.num_experts_per_tok);         // combine
  }
  chain.add(back ? 2 * inner : width);  // gate and up
  chain.add(kFewRoundings);             // activation
  chain.add(back ? width : inner);      // down
  chain.add_over(tensor);
  chain.add(1);  // residual
}

Chain whole_pass(const RunConfig& config, bool back) {
  const ModelConfig& m = config.model;
  Chain chain;
  for (int64_t layer = 0; layer < m.num_hidden_layers; ++layer) add_layer(config, layer, back, chain);
  chain.add(m.hidden_size);                        // norm
  chain.add(back ? m.vocab_size : m.hidden_size);  // logits
  chain.add(m.vocab_size);                         // softmax
  chain.add_over(config.parallelism.tensor_parallel_degree);
  return chain;
}

// Of forward and backward: backward starts from what forward computed and multiplies with what it kept.
double pass_variance(const RunConfig& config, double unit) {
  return 2 * whole_pass(config, false).variance(unit) + whole_pass(config, true).variance(unit);
}

// The angles of rotary positions are the same fp32 numbers in every layout, and errors of theirs show against exact
// ones alone. An angle is position · frequency, at most its position, after four roundings (exponent, power,
// reciprocal, product). It is no error of one layer that another's makes up for: all turn by the same angles, so layers
// add up.
double angle_variance(const RunConfig& config) {
  const double angle = static_cast<double>(config.model.num_hidden_layers * config.data.seq_len) * kUnit32;
  return angle * angle * 4 / 3;
}

}  // namespace

Noise::Noise(const RunConfig& small, int data_ranks, Reference reference) {
  const double unit = small.train.dtype == "bfloat16" ? kUnit16 : kUnit32;
  const Chain forward = whole_pass(small, false);
  Chain batch;
  batch.add(small.train.global_batch_size * small.data.seq_len);
  const bool exact = reference == Reference::kPortable;
  const double factor = kDeviations * (exact ? 1 : kTwoRuns) * kGain, angles = exact ? angle_variance(small) : 0;
  loss_ = factor * std::sqrt(forward.variance(unit) + batch.variance(kUnit32) + angles);
  gradient_ = factor * std::sqrt(pass_variance(small, unit) + batch.variance(kUnit32) + 3 * angles);
  RunConfig whole = small;
  whole.parallelism.tensor_parallel_degree = 1;
  layout_factor_ = pass_variance(small, unit) / pass_variance(whole, unit);
  if (small.train.reduce_dtype == "bfloat16") {
    // Rounded before it is sent and after each of at most two sums over data ranks, and after that over ranks beside
    // them (arch/holding.h); in one of the two runs alone.
    const bool beside = small.parallelism.tensor_parallel_degree * small.parallelism.pipeline_parallel_degree > 1;
    const double roundings = (data_ranks > 1 ? 3 : 0) + (beside ? 2 : 0);
    reduction_variance_ = kUnit16 * kUnit16 * roundings / 3;
    gradient_ = std::hypot(gradient_, kDeviations * std::sqrt(reduction_variance_));
  }
  num_experts_ = static_cast<double>(small.model.num_experts);
  sensitivity_ = 2 * kGain * std::sqrt(static_cast<double>(small.model.hidden_size));
}

UpdateNoise::UpdateNoise(const OptimizerConfig& config, std::vector<int64_t> shape)
    : config_(config), shape_(std::move(shape)) {
  size_t size = 1;
  for (const int64_t dim : shape_) size *= static_cast<size_t>(dim);
  delta_.resize(size);
  bound_.resize(size);
}

// For each element the root mean square of its row or of its column, whichever is larger; of the whole for a vector.
// A row of zeros in both runs (a token that does not occur) is exact: below zero. In one of them it is what cancels
// there and leaves a rounding in the other, such as the last position's token under balancing by equal shares; or an
// expert that noisy scores gave a token in one run alone.
std::vector<double> UpdateNoise::scale_of(const std::vector<float>& grad, const std::vector<float>& other_grad) const {
  const auto columns = static_cast<size_t>(shape_.back());
  const size_t rows = shape_.size() > 1 ? static_cast<size_t>(shape_[shape_.size() - 2]) : 1, matrix = rows * columns,
               count = matrix > 0 ? grad.size() / matrix : 0;
  std::vector<double> scale(grad.size());
  for (size_t m = 0; m < count; ++m) {
    std::vector<double> row(rows), column(columns);
    std::vector<bool> exact(rows, true);
    for (size_t i = 0; i < matrix; ++i) {
      const double square = static_cast<double>(grad[m * matrix + i]) * grad[m * matrix + i];
      row[i / columns] += square / static_cast<double>(columns);
      column[i % columns] += square / static_cast<double>(rows);
      if (grad[m * matrix + i] != 0 || other_grad[m * matrix + i] != 0) exact[i / columns] = false;
    }
    for (size_t i = 0; i < matrix; ++i) {
      scale[m * matrix + i] = exact[i / columns] ? -1 : std::sqrt(std::max(row[i / columns], column[i % columns]));
    }
  }
  return scale;
}

void UpdateNoise::add_step(const Step& step, const std::vector<float>& grad, const std::vector<float>& other_grad,
                           const std::vector<float>& exp_avg_sq, const std::vector<float>& master) {
  const double beta1 = config_.betas[0], beta2 = config_.betas[1], count = static_cast<double>(step.number);
  const double correction1 = 1 - std::pow(beta1, count), correction2 = 1 - std::pow(beta2, count);
  double largest = 0;  // |m̂| / √v̂
  for (int64_t s = 0; s < step.number; ++s) {
    const double a = (1 - beta1) * std::pow(beta1, static_cast<double>(s)) / correction1,
                 b = (1 - beta2) * std::pow(beta2, static_cast<double>(s)) / correction2;
    if (b > 0) largest += a * a / b;
  }
  largest = std::sqrt(largest);
  const std::vector<double> sizes = scale_of(grad, other_grad);
  for (size_t i = 0; i < bound_.size(); ++i) {
    const double size = sizes[i] < 0 ? 0 : std::max(sizes[i], step.least);
    delta_[i] = std::max(delta_[i], step.relative * step.scale * size);
    const double root = std::sqrt(static_cast<double>(exp_avg_sq[i]) / correction2);
    const double share = (1 + largest) * delta_[i] / (root + config_.eps);
    // The update is computed, and the weight stored, in fp32 by both.
    const double rounding = 7 * 2 * kUnit32 * (std::abs(static_cast<double>(master[i])) + 4 * step.lr);
    bound_[i] += step.lr * std::min(2 * largest, share) + rounding;
  }
}

double UpdateNoise::norm(int64_t begin, int64_t end) const {
  double sum = 0;
  for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) sum += bound_[i] * bound_[i];
  return std::sqrt(sum);
}

}  // namespace athanor
