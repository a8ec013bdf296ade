#include "verify/portable/portable_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "arch/model_spec.h"
#include "base/error.h"
#include "ops/library_functions.h"

namespace athanor::inline verify::portable {
namespace {

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, double offset) {
  return (weight + offset) * x / at::sqrt(x.square().mean(-1, true) + eps);
}

Tensor layer_norm(const Tensor& x, double eps) {
  const Tensor centred = x - x.mean(-1, true);
  return centred / at::sqrt(centred.square().mean(-1, true) + eps);
}

// Hendrycks and Gimpel 2016.
Tensor gelu_exact(const Tensor& x) { return 0.5 * x * (1 + at::erf(x / std::numbers::sqrt2)); }

// Its approximation with tanh.
Tensor gelu_tanh(const Tensor& x) {
  const Tensor inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + at::tanh(inner));
}

Tensor swiglu(const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor& down) {
  const Tensor g = at::linear(x, gate);
  return at::linear(g * at::sigmoid(g) * at::linear(x, up), down);
}

Tensor geglu(const Tensor& x, const Tensor& gate, const Tensor& up, const Tensor& down) {
  return at::linear(gelu_tanh(at::linear(x, gate)) * at::linear(x, up), down);
}

// OpenAI 2025, gpt-oss.
Tensor clamped_swiglu(const Tensor& gate, const Tensor& up, const GatedUnit& unit) {
  const Tensor g = at::minimum(gate, at::scalar_tensor(unit.limit, at::kDouble)),
               u = at::where(up.abs() > unit.limit, unit.limit * at::sign(up), up);
  return g * at::sigmoid(unit.slope * g) * (u + unit.offset);
}

// Gemma Team 2024, §2.
Tensor soft_cap(const Tensor& logits, double cap) { return cap > 0 ? cap * at::tanh(logits / cap) : logits; }

// ---- Positions

// Radians from one position to the next, and the factor of cos and sin. Source: Su et al. 2021; linear: Chen et al.
// 2023; YaRN: Peng et al. 2023, §3 (with the weights of DeepSeek's mscale); llama3: Llama 3.1; longrope: Ding et al.
// 2024.
struct Rotation {
  std::vector<double> frequency;
  double scale = 1;
};

double mix(double frequency, double share_left_alone, double factor) {
  return share_left_alone * frequency + (1 - share_left_alone) * frequency / factor;
}

double yarn_scale(const RopeScaling& r) {
  const auto temperature = [&](double weight) { return 1 + 0.1 * weight * std::log(r.factor); };
  if (r.attention_factor > 0) return r.attention_factor;
  if (r.mscale > 0 && r.mscale_all_dim > 0) return temperature(r.mscale) / temperature(r.mscale_all_dim);
  return temperature(1);
}

Rotation rotation_of(const ModelConfig& m, const RopeScaling& r, double theta, int64_t tokens) {
  const auto dim = static_cast<double>(m.rotated_dims());
  const auto length = static_cast<double>(r.original_max_position_embeddings > 0 ? r.original_max_position_embeddings
                                                                                 : m.max_position_embeddings);
  // Returns the (fractional) pair of dims that makes this many turns over `length` tokens.
  const auto pair_with = [&](double turns) {
    return dim / 2 * std::log(length / (2 * std::numbers::pi * turns)) / std::log(theta);
  };
  Rotation rotation;
  if (r.type() == RopeType::kYarn) rotation.scale = yarn_scale(r);
  const bool longrope = r.type() == RopeType::kLongRope;
  if (longrope && r.attention_factor > 0)
    rotation.scale = r.attention_factor;
  else if (longrope && r.factor > 1)
    rotation.scale = std::sqrt(1 + std::log(r.factor) / std::log(length));
  const auto& factors = static_cast<double>(tokens) > length ? r.long_factor : r.short_factor;
  for (int64_t i = 0; i < m.rotated_dims() / 2; ++i) {
    const double f = std::pow(theta, -2 * static_cast<double>(i) / dim);
    double alone = 1;
    if (r.type() == RopeType::kLinear) alone = 0;
    if (r.type() == RopeType::kLlama3) {
      const double wavelength = 2 * std::numbers::pi / f;
      alone = (length / wavelength - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
    }
    if (r.type() == RopeType::kYarn) {
      double first = pair_with(r.beta_fast), last = pair_with(r.beta_slow);
      if (r.truncate) first = std::floor(first), last = std::ceil(last);
      first = std::max(first, 0.0), last = std::min(last, dim - 1);
      if (first == last) last += 0.001;
      alone = 1 - (static_cast<double>(i) - first) / (last - first);
    }
    rotation.frequency.push_back(longrope ? f / factors[static_cast<size_t>(i)]
                                          : mix(f, std::clamp(alone, 0.0, 1.0), r.factor));
  }
  rotation.frequency.resize(static_cast<size_t>(m.head_dim() / 2), 0);  // pairs that are not turned
  return rotation;
}

// x [B, T, heads, head_dim]; position_BT fp64. Pair i is dims i and i + head_dim / 2.
Tensor rotate(const Tensor& x, const Tensor& position_BT, const Rotation& rotation) {
  const Tensor frequency = at::tensor(rotation.frequency, at::kDouble);
  const Tensor angle = position_BT.view({x.size(0), x.size(1), 1, 1}) * frequency;
  ops::start_library_functions();
  const Tensor scale = at::where(frequency == 0, 1.0, rotation.scale);  // what is not turned keeps 1
  const Tensor cos = angle.cos() * scale, sin = angle.sin() * scale;
  const int64_t half = x.size(3) / 2;
  const Tensor a = x.narrow(3, 0, half), b = x.narrow(3, half, half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, 3);
}

// ---- Attention masks

struct Sight {
  Tensor position_BT;  ///< position of each token in its document
  Tensor hidden_BTT;   ///< true if a token does not attend to another
};

Sight sight_of(const Tensor& tokens_BT, bool by_document, int64_t end_of_document) {
  const int64_t batch = tokens_BT.size(0), length = tokens_BT.size(1);
  Tensor document = at::zeros({batch, length}, at::kLong), position = at::zeros({batch, length}, at::kDouble);
  const auto token = tokens_BT.accessor<int64_t, 2>();
  auto number = document.accessor<int64_t, 2>();
  auto place = position.accessor<double, 2>();
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 1; t < length; ++t) {
      const bool begins = by_document && token[b][t - 1] == end_of_document;
      number[b][t] = number[b][t - 1] + begins;
      place[b][t] = begins ? 0 : place[b][t - 1] + 1;
    }
  }
  const Tensor later = at::ones({length, length}, at::kBool).triu(1);
  return {position, later.unsqueeze(0).logical_or(document.unsqueeze(2) != document.unsqueeze(1))};
}

// ---- Drawn labels

// Vigna's and Steele's SplitMix64: the output for the counter's number, as kernels/label_draw.h defines it.
double uniform_of(uint64_t key, uint64_t counter) {
  uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return (static_cast<double>(z >> 32) + 0.5) * 0x1p-32;
}

// Logarithms of probabilities are logits minus a number that all ids of a token share.
void draw_labels(const Tensor& log_probs_BTV, int64_t first_row, int64_t length, const LabelsDrawn& labels) {
  const int64_t vocab = log_probs_BTV.size(2);
  const auto logits = log_probs_BTV.accessor<double, 3>();
  auto drawn = labels.own_BT.accessor<int64_t, 2>();
  for (int64_t b = 0; b < log_probs_BTV.size(0); ++b) {
    for (int64_t t = 0; t < log_probs_BTV.size(1); ++t) {
      const auto row = static_cast<uint64_t>(first_row + b * length + t);
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t v = 0; v < vocab; ++v) {
        const double uniform = uniform_of(labels.key, row * static_cast<uint64_t>(vocab) + static_cast<uint64_t>(v)),
                     value = logits[b][t][v] - std::log(-std::log1p(-uniform));
        if (value > largest) largest = value, drawn[b][t] = v;
      }
    }
  }
}

// ---- The decoder

class Decoder {
 public:
  Decoder(const RunConfig& config, const Parameters& parameters, const RouterMemory& memory)
      : config_(config), m_(config.model), parameters_(parameters), memory_(memory), model_(make_model_spec(m_)) {}

  Losses run(const Tensor& tokens_BT, int64_t end_of_document, int64_t first_sequence, int64_t step,
             const LabelsDrawn* labels) {
    rotation_ = rotation_of(m_, m_.rope_scaling, m_.rope_theta, tokens_BT.size(1));
    unscaled_rotation_ = rotation_of(m_, {}, m_.theta_in_windows(), tokens_BT.size(1));
    const Sight sight = sight_of(tokens_BT, config_.data.attention_scope == AttentionScope::kDocument, end_of_document);
    Losses losses;
    Tensor x = model_.embedding_scale * at::embedding(weight(model_.embedding.weight()), tokens_BT);
    if (model_.positions) x = x + at::embedding(weight(model_.positions->weight()), sight.position_BT.to(at::kLong));
    for (const LayerSpec& layer : model_.layers) {
      const Tensor attended = attention(layer.attention, norm(x, layer.attention_norm), sight);
      const Tensor before = x;
      x = x + norm(attended, layer.attention_out_norm);
      const Tensor read = norm(layer.parallel ? before : x, layer.feed_forward_norm);
      const Tensor fed =
          layer.is_sparse()
              ? sparse(layer.sparse(), read, {layer.index, step, tokens_BT.size(0), first_sequence}, losses.routers)
              : dense(layer.dense(), read);
      x = x + norm(fed, layer.feed_forward_out_norm);
    }
    add_losses(norm(x, model_.final_norm), tokens_BT, first_sequence, labels, losses);
    return losses;
  }

 private:
  const Tensor& weight(const std::string& name) const {
    const auto found = parameters_.find(name);
    ATHANOR_ASSERT(found != parameters_.end());
    return found->second;
  }

  Tensor norm(const Tensor& x, const NormSpec& norm) const {
    if (norm.kind == NormKind::kRms) return rms_norm(x, weight(norm.weight()), norm.eps, norm.offset);
    const Tensor normed = layer_norm(x, norm.eps);
    return norm.has_bias() ? normed * weight(norm.weight()) + weight(norm.bias()) : normed;
  }

  Tensor norm(const Tensor& x, const std::optional<NormSpec>& spec) const { return spec ? norm(x, *spec) : x; }

  Tensor linear(const Tensor& x, const LinearSpec& linear) const {
    const Tensor y = at::linear(x, weight(linear.weight()));
    return linear.has_bias ? y + weight(linear.bias()) : y;
  }

  Tensor latent(const Tensor& x, const std::optional<LatentSpec>& spec) const {
    return spec ? norm(linear(x, spec->down), spec->norm) : x;
  }

  // Turns the dims that all heads share, which are pairs of the first and the second half, and joins each of these with
  // that half of a head's own.
  Tensor keys_of_latent(const AttentionSpec& a, const Tensor& x, const Sight& sight) const {
    const Tensor own = linear(latent(x, a.key_value_latent), a.key).view({x.size(0), x.size(1), a.heads, -1});
    Rotation of_shared = rotation_;
    of_shared.frequency.resize(static_cast<size_t>(a.shared_key->rows / 2));
    const Tensor shared = rotate(linear(x, *a.shared_key).unsqueeze(2), sight.position_BT, of_shared)
                              .expand({x.size(0), x.size(1), a.heads, a.shared_key->rows});
    const auto of_own = own.chunk(2, 3), of_all = shared.chunk(2, 3);
    return at::cat({of_all[0], of_own[0], of_all[1], of_own[1]}, 3);
  }

  // Returns queries or keys, [B, T, heads, head_dim]: projected, normed, clipped, rotated.
  Tensor project(const AttentionSpec& a, const Tensor& x, bool is_query, const Sight& sight) const {
    const std::string& scale = is_query ? a.query_norm : a.key_norm;
    if (a.key_value_latent && !is_query) return keys_of_latent(a, x, sight);
    Tensor y = linear(is_query ? latent(x, a.query_latent) : x, is_query ? a.query : a.key);
    if (a.qk_norm == QkNorm::kWhole) y = rms_norm(y, weight(scale), a.norm_eps, a.norm_offset);
    if (a.clip > 0) y = y.clamp(-a.clip, a.clip);
    y = y.view({x.size(0), x.size(1), is_query ? a.heads : a.kv_heads, a.head_dim});
    if (a.qk_norm == QkNorm::kHead) y = rms_norm(y, weight(scale), a.norm_eps, a.norm_offset);
    if (!a.rotates) return y;
    return rotate(y, sight.position_BT, a.scales_rotation ? rotation_ : unscaled_rotation_);
  }

  // Those of the keys; a sink takes a share of each token's, too (gpt-oss).
  Tensor attention_weights(const AttentionSpec& a, const Tensor& logits_BHTT) const {
    if (a.sinks.empty()) return at::softmax(logits_BHTT, -1);
    const Tensor sink_BHT1 = weight(a.sinks).view({1, -1, 1, 1}).expand_as(logits_BHTT.narrow(3, 0, 1));
    const Tensor with_sink = at::softmax(at::cat({sink_BHT1, logits_BHTT}, -1), -1);
    return with_sink.narrow(3, 1, logits_BHTT.size(3));
  }

  Tensor attention(const AttentionSpec& a, const Tensor& x, const Sight& sight) const {
    const int64_t batch = x.size(0), length = x.size(1);
    const auto by_head = [&](const Tensor& y) {  // [B, heads, T, head_dim], key heads repeated for their queries
      return y.repeat_interleave(a.heads / y.size(2), 2).transpose(1, 2);
    };
    Tensor v = linear(latent(x, a.key_value_latent), a.value);
    if (a.clip > 0) v = v.clamp(-a.clip, a.clip);
    v = by_head(v.view({batch, length, a.kv_heads, a.value_dim}));
    const Tensor q = by_head(project(a, x, true, sight)), k = by_head(project(a, x, false, sight));
    const double scale = a.scale > 0 ? a.scale : 1 / std::sqrt(static_cast<double>(a.head_dim));
    const Tensor scores = soft_cap(at::matmul(q, k.transpose(2, 3)) * scale, a.soft_cap);
    Tensor hidden_BTT = sight.hidden_BTT;
    if (a.window > 0) {  // those that are `window` or more tokens back
      const Tensor far = at::ones({length, length}, at::kBool).tril(-a.window);
      hidden_BTT = hidden_BTT.logical_or(far.unsqueeze(0));
    }
    const Tensor seen = scores.masked_fill(hidden_BTT.unsqueeze(1), -std::numeric_limits<double>::infinity());
    const Tensor attended = at::matmul(attention_weights(a, seen), v).transpose(1, 2).reshape({batch, length, -1});
    return linear(attended, a.out);
  }

  Tensor dense(const FeedForwardSpec& f, const Tensor& x) const {
    if (f.kind == FeedForwardKind::kGelu) return linear(gelu_exact(linear(x, f.up)), f.down);
    if (f.kind == FeedForwardKind::kGeluTanh) return linear(gelu_tanh(linear(x, f.up)), f.down);
    const auto gated = f.kind == FeedForwardKind::kGeGlu ? geglu : swiglu;
    return gated(x, weight(f.gate->weight()), weight(f.up.weight()), weight(f.down.weight()));
  }

  Tensor expert(const SparseSpec& s, int64_t e, const Tensor& x) const {
    if (s.gate.empty()) return at::linear(gelu_tanh(at::linear(x, weight(s.up)[e])), weight(s.down)[e]);
    if (s.down_bias.empty()) return swiglu(x, weight(s.gate)[e], weight(s.up)[e], weight(s.down)[e]);
    const Tensor gate = at::linear(x, weight(s.gate)[e]) + weight(s.gate_bias)[e],
                 up = at::linear(x, weight(s.up)[e]) + weight(s.up_bias)[e];
    return at::linear(clamped_swiglu(gate, up, s.unit), weight(s.down)[e]) + weight(s.down_bias)[e];
  }

  Tensor sparse(const SparseSpec& s, const Tensor& x, const RoutedTokens& tokens, std::vector<Routed>& routers) const {
    const auto row = static_cast<int64_t>(routers.size());
    const Tensor bias = memory_.bias.defined() ? memory_.bias[row] : Tensor();
    const Tensor x_TD = x.reshape({-1, s.width});
    routers.push_back(route(config_, linear(x_TD, s.router), bias, tokens));
    Tensor y_TD = at::zeros_like(x_TD);
    for (int64_t e = 0; e < s.experts; ++e)
      y_TD = y_TD + routers.back().weights_TE.narrow(1, e, 1) * expert(s, e, x_TD);
    if (s.shared) {
      const Tensor shared = dense(*s.shared, x_TD);
      y_TD = y_TD + (s.shared_gate ? at::sigmoid(linear(x_TD, *s.shared_gate)) * shared : shared);
    }
    return y_TD.view(x.sizes());
  }

  void add_losses(const Tensor& x, const Tensor& tokens_BT, int64_t first_sequence, const LabelsDrawn* labels,
                  Losses& losses) const {
    const int64_t targets = tokens_BT.size(1) - 1;
    const Tensor& output = weight(model_.output ? model_.output->weight() : model_.embedding.weight());
    const Tensor logits = soft_cap(at::linear(x.narrow(1, 0, targets), output), model_.output_cap),
                 log_probs = at::log_softmax(logits, -1);
    Tensor labels_BT = tokens_BT.narrow(1, 1, targets);
    if (labels) {
      draw_labels(log_probs.detach(), first_sequence * tokens_BT.size(1), tokens_BT.size(1), *labels);
      labels_BT = labels->given_BT.narrow(1, 0, targets);
    }
    losses.loss_sum = -log_probs.gather(2, labels_BT.unsqueeze(2)).sum();
    losses.num_targets = tokens_BT.size(0) * targets;
    if (losses.routers.empty()) return;
    losses.aux_sum = balancing_loss(config_, losses.routers, memory_.previous_share);
    losses.z_sum = at::zeros({}, at::kDouble);
    for (const Routed& router : losses.routers) losses.z_sum = losses.z_sum + router.z_sum;
  }

  const RunConfig& config_;
  const ModelConfig& m_;
  const Parameters& parameters_;
  const RouterMemory& memory_;
  ModelSpec model_;
  Rotation rotation_, unscaled_rotation_;
};

}  // namespace

Losses run_decoder(const RunConfig& config, const Parameters& parameters, const RouterMemory& memory,
                   const Tensor& tokens_BT, int64_t end_of_document, int64_t first_sequence, int64_t step,
                   const LabelsDrawn* labels) {
  return Decoder(config, parameters, memory).run(tokens_BT, end_of_document, first_sequence, step, labels);
}

}  // namespace athanor::inline verify::portable
