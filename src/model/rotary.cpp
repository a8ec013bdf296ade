#include "model/rotary.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "ops/rope.h"

namespace athanor::inline model {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

double original_length(const ModelConfig& m) {
  const int64_t given = m.rope_scaling.original_max_position_embeddings;
  return static_cast<double>(given > 0 ? given : m.max_position_embeddings);
}

// The number of turns of a dim within the original length decides. A dim with many turns stays as it is, a dim with few
// is stretched by `factor`, and between the two it is a mean of both.
double llama3_share_left_alone(const ModelConfig& m, double frequency) {
  const auto& r = m.rope_scaling;
  const double turns = original_length(m) * frequency / kTwoPi;
  return std::clamp((turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor), 0.0, 1.0);
}

// Does the same with a ramp over the dims' indices.
class YarnRamp {
 public:
  explicit YarnRamp(const ModelConfig& m) {
    const auto head_dim = static_cast<double>(m.rotated_dims());
    // Returns the index at which a dim makes this many turns.
    const auto index_at = [&](double turns) {
      return head_dim * std::log(original_length(m) / (turns * kTwoPi)) / (2 * std::log(m.rope_theta));
    };
    const auto& r = m.rope_scaling;
    const double fast = index_at(r.beta_fast), slow = index_at(r.beta_slow);
    low_ = std::max(r.truncate ? std::floor(fast) : fast, 0.0);
    high_ = std::min(r.truncate ? std::ceil(slow) : slow, head_dim - 1);
    if (low_ == high_) high_ += 0.001;  // a step instead of a division by zero
  }

  double share_left_alone(int64_t i) const {
    return 1 - std::clamp((static_cast<double>(i) - low_) / (high_ - low_), 0.0, 1.0);
  }

 private:
  double low_, high_;
};

// What queries and keys are multiplied by.
double attention_factor(const ModelConfig& m) {
  const RopeScaling& r = m.rope_scaling;
  if (r.attention_factor > 0) return r.attention_factor;
  if (r.type() == RopeType::kLongRope)
    return r.factor > 1 ? std::sqrt(1 + std::log(r.factor) / std::log(original_length(m))) : 1;
  if (r.type() != RopeType::kYarn) return 1;
  const bool has_both = r.mscale > 0 && r.mscale_all_dim > 0;
  return has_both ? r.temperature(r.mscale) / r.temperature(r.mscale_all_dim) : r.temperature(1);
}

// Returns the frequencies, each divided by its factor.
Tensor divide_each(const Tensor& frequency, const std::vector<double>& factors) {
  Tensor divided = frequency.clone();
  auto* at = divided.data_ptr<float>();
  for (size_t i = 0; i < factors.size(); ++i) at[i] /= static_cast<float>(factors[i]);
  return divided;
}

void stretch(const ModelConfig& m, Tensor& frequencies) {
  const RopeScaling& r = m.rope_scaling;
  auto* frequency = frequencies.data_ptr<float>();
  for (int64_t i = 0; i < m.rotated_dims() / 2; ++i) {
    const double unscaled = frequency[i];
    const double alone = r.type() == RopeType::kYarn     ? YarnRamp(m).share_left_alone(i)
                         : r.type() == RopeType::kLlama3 ? llama3_share_left_alone(m, unscaled)
                                                         : 0;  // linear
    frequency[i] = static_cast<float>(unscaled * (alone + (1 - alone) / r.factor));
  }
}

}  // namespace

ops::RotaryFrequencies make_rotary(const ModelConfig& m) {
  const int64_t turned = m.rotated_dims() / 2, pairs = m.head_dim() / 2;
  const auto& r = m.rope_scaling;
  ops::RotaryFrequencies rotary{at::zeros({pairs}, at::kFloat)};
  rotary.frequency.narrow(0, 0, turned).copy_(ops::inverse_frequency(m.rotated_dims(), m.rope_theta));
  if (r.type() == RopeType::kDefault || r.type() == RopeType::kDynamic) return rotary;
  if (const double factor = attention_factor(m); factor != 1) {
    rotary.scale = at::ones({pairs}, at::kFloat);
    rotary.scale.narrow(0, 0, turned).fill_(factor);
  }
  if (r.type() == RopeType::kLongRope) {
    rotary.of_long = divide_each(rotary.frequency, r.long_factor);
    rotary.short_tokens = static_cast<int64_t>(original_length(m));
    rotary.frequency = divide_each(rotary.frequency, r.short_factor);
  } else {
    stretch(m, rotary.frequency);
  }
  return rotary;
}

RotationsOfModel::RotationsOfModel(const ModelSpec& spec, const ModelConfig& model, at::Device device) {
  const auto add = [&](std::optional<ops::RotationTables>& tables, const ModelConfig& m) {
    if (tables) return;
    tables.emplace(make_rotary(m), device);
  };
  ModelConfig unscaled = model;
  unscaled.rope_scaling = {};
  unscaled.rope_theta = model.theta_in_windows();
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.attention.rotates) continue;
    layer.attention.scales_rotation ? add(scaled_, model) : add(unscaled_, unscaled);
  }
}

}  // namespace athanor::inline model
