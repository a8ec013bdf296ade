// Shapes: B sequences and T tokens of a microbatch, N = B·T, D hidden, H heads, C width of a head, F ffn, V vocabulary.

#include "bench/step_parts.h"

#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <memory>

#include "arch/model_spec.h"
#include "bench/moe_block.h"
#include "bench/place.h"
#include "blocks/feed_forward.h"
#include "config/families.h"
#include "config/precision.h"
#include "ops/adamw.h"
#include "ops/affine.h"
#include "ops/attention.h"
#include "ops/embedding.h"
#include "ops/gelu.h"
#include "ops/linear.h"
#include "ops/linear_cross_entropy.h"
#include "ops/norm.h"
#include "ops/norm_rope.h"
#include "ops/sum_of_squares.h"
#include "ops/swiglu.h"
#include "ops/tensor.h"
#include "optim/gradient_norm.h"

namespace athanor::bench {
namespace {

using at::Tensor;

struct Shapes {
  int64_t B, T, N, D, heads, kv_heads, C, F, V;
  at::ScalarType dtype;
  double size;   // bytes of an element
  double calls;  // microbatches in a step
  const RunConfig* config;
  at::Device device;

  Shapes(const RunConfig& c, at::Device where)
      : B(c.train.micro_batch_size), T(c.data.seq_len), N(B * T), D(c.model.hidden_size),
        heads(c.model.num_attention_heads), kv_heads(c.model.kv_heads()), C(c.model.head_dim()),
        F(c.model.intermediate_size), V(c.model.vocab_size), dtype(ops::scalar_type(precision_of(c).compute)),
        size(dtype == at::kFloat ? 4 : 2), calls(double(c.train.global_batch_size) / double(c.train.micro_batch_size)),
        config(&c), device(where) {}

  Tensor random(at::IntArrayRef shape, double deviation = 1) const {
    return at::empty(shape, at::TensorOptions(dtype).device(device)).normal_(0, deviation);
  }
  Tensor zeros(at::IntArrayRef shape) const { return at::zeros(shape, at::TensorOptions(at::kFloat).device(device)); }
  Tensor ones(at::IntArrayRef shape) const { return at::ones(shape, at::TensorOptions(dtype).device(device)); }
  Tensor random_ids(at::IntArrayRef shape) const {
    return sent(at::randint(V, shape, at::TensorOptions(at::kLong)), device);
  }
  Weight weight(at::IntArrayRef shape) const { return {random(shape, 0.02), zeros(shape)}; }
  Weight bias(int64_t width) const { return {zeros({width}).to(dtype), zeros({width})}; }
  /// Undefined if the layer has none.
  Weight bias_of(const LinearSpec& linear, int64_t width) const { return linear.has_bias ? bias(width) : Weight{}; }
  double elements() const { return double(N) * double(D); }
};

Tensor add_bias(const Tensor& y, const Weight& bias) { return bias.defined() ? ops::affine(y, {}, bias) : y; }

// Forward on fresh leaves, then backward from a random gradient, measured as one part.
Subject forward_backward(std::string name, double work, std::vector<Tensor> inputs,
                         std::function<std::vector<Tensor>(const std::vector<Tensor>&)> forward) {
  for (Tensor& input : inputs) input.requires_grad_();
  // Gradients of the outputs, which the first call makes; that call is not timed.
  const auto grads = std::make_shared<std::vector<Tensor>>();
  return {std::move(name), {{"", work}}, [=, forward = std::move(forward)](Laps& laps) {
            for (const Tensor& input : inputs) input.mutable_grad() = Tensor();
            laps.skip();
            const auto outputs = forward(inputs);
            if (grads->empty()) {
              for (const Tensor& y : outputs) grads->push_back(at::empty_like(y).normal_(0, 1));
            }
            torch::autograd::backward(outputs, *grads);
            laps.end(0);
          }};
}

StepPart embedding_part(const Shapes& s) {
  const Weight weight = s.weight({s.V, s.D});
  const Tensor tokens = s.random_ids({s.B, s.T});
  // Rows are read and written, their gradient read and added to fp32.
  return {forward_backward("embedding", s.elements() * (3 * s.size + 8), {},
                           [=](const auto&) { return std::vector<Tensor>{ops::embedding(tokens, weight)}; }),
          s.calls, Bound::kCopy};
}

StepPart norm_part(const Shapes& s) {
  const double eps = norm_eps(s.config->model);
  const NormKind kind = family_of(s.config->model).norm;
  const Weight weight{s.ones({s.D}), s.zeros({s.D})}, bias = s.bias(s.D);
  const auto forward = [=](const std::vector<Tensor>& in) {
    const bool is_rms = kind == NormKind::kRms;
    const auto both = is_rms ? ops::add_rms_norm(in[0], in[1], weight, eps) : ops::add_layer_norm(in[0], in[1], eps);
    const bool scales = kind == NormKind::kLayer;
    return std::vector<Tensor>{both.sum, scales ? ops::affine(both.normed, weight, bias) : both.normed};
  };
  // Forward reads two and writes two, backward reads three (two gradients, the sum) and writes one.
  return {forward_backward("residual add and norm", s.elements() * 8 * s.size,
                           {s.random({s.B, s.T, s.D}), s.random({s.B, s.T, s.D})}, forward),
          s.calls * double(2 * s.config->model.num_hidden_layers), Bound::kCopy};
}

StepPart projections_part(const Shapes& s) {
  const int64_t q_width = s.heads * s.C, kv_width = s.kv_heads * s.C;
  const std::vector<Weight> weights = {s.weight({q_width, s.D}), s.weight({kv_width, s.D}), s.weight({kv_width, s.D}),
                                       s.weight({s.D, q_width})};
  const AttentionSpec spec = make_layer_spec(s.config->model, 0).attention;
  const std::vector<Weight> biases = {s.bias_of(spec.query, q_width), s.bias_of(spec.key, kv_width),
                                      s.bias_of(spec.value, kv_width), s.bias_of(spec.out, s.D)};
  const auto forward = [=](const std::vector<Tensor>& in) {
    std::vector<Tensor> out;
    for (size_t i = 0; i < weights.size(); ++i)
      out.push_back(add_bias(ops::linear(in[i < 3 ? 0 : 1], weights[i]), biases[i]));
    return out;
  };
  const double flops = 3 * 2 * double(s.N) * double(s.D) * double(2 * q_width + 2 * kv_width);
  return {forward_backward("q, k, v, o projections", flops, {s.random({s.B, s.T, s.D}), s.random({s.B, s.T, q_width})},
                           forward),
          s.calls * double(s.config->model.num_hidden_layers), Bound::kGemm};
}

StepPart rotation_part(const Shapes& s) {
  using Norm = ops::NormRope::Norm;
  const auto& model = s.config->model;
  const auto kind = family_of(model).qk_norm;
  const Norm norm = kind == QkNorm::kNone ? Norm::kNone : kind == QkNorm::kWhole ? Norm::kWhole : Norm::kHead;
  const ops::NormRope how{norm, norm_eps(model), model.clip_qkv};
  const auto here =
      ops::make_rotation(at::arange(s.T, at::kLong).expand({s.B, s.T}), ops::inverse_frequency(s.C, model.rope_theta));
  const ops::Rotation rotation{sent(here.cos, s.device), sent(here.sin, s.device)};
  const std::vector<int64_t> heads = {s.heads, s.kv_heads};
  std::vector<Weight> scales(2);
  for (size_t i = 0; norm != Norm::kNone && i < 2; ++i) {
    const int64_t width = norm == Norm::kWhole ? heads[i] * s.C : s.C;
    scales[i] = {s.ones({width}), s.zeros({width})};
  }
  const auto forward = [=](const std::vector<Tensor>& in) {
    std::vector<Tensor> out;
    for (size_t i = 0; i < 2; ++i) out.push_back(ops::norm_rope(in[i], scales[i], how, rotation, heads[i]));
    return out;
  };
  const double elements = double(s.N) * double((s.heads + s.kv_heads) * s.C);
  // Forward reads and writes, backward reads gradient and input and writes.
  return {forward_backward("QK-norm and RoPE", elements * 5 * s.size,
                           {s.random({s.B, s.T, s.heads * s.C}), s.random({s.B, s.T, s.kv_heads * s.C})}, forward),
          s.calls * double(model.num_hidden_layers), Bound::kCopy};
}

// A part for the layers without a window, and one for those with it.
void append_attention(const Shapes& s, std::vector<StepPart>& parts) {
  const ModelConfig& model = s.config->model;
  std::map<int64_t, int64_t> layers;  // by their windows
  for (int64_t l = 0; l < model.num_hidden_layers; ++l) ++layers[model.window_of(l)];
  AttentionSpec spec = make_layer_spec(model, 0).attention;
  for (const auto& [window, count] : layers) {
    spec.window = window;
    ops::AttentionOptions options{.window = window, .scale = spec.scale, .soft_cap = spec.soft_cap};
    if (!spec.sinks.empty()) options.sinks = s.weight({s.heads});
    const double flops = 3 * spec.score_flops(double(s.B * s.T), double(s.T));  // backward is twice forward
    parts.push_back({forward_backward(window > 0 ? "attention in the window" : "attention", flops,
                                      {s.random({s.B, s.T, s.heads, s.C}), s.random({s.B, s.T, s.kv_heads, s.C}),
                                       s.random({s.B, s.T, s.kv_heads, s.C})},
                                      [options](const auto& in) {
                                        return std::vector<Tensor>{ops::attention(in[0], in[1], in[2], {}, options)};
                                      }),
                     s.calls * double(count), Bound::kGemm});
  }
}

MoeShape moe_shape(const RunConfig& c) {
  return {c.train.micro_batch_size * c.data.seq_len,
          c.model.hidden_size,
          c.model.expert_intermediate_size(),
          c.model.num_experts,
          c.model.num_experts_per_tok,
          ops::scalar_type(precision_of(c).compute),
          form_of_experts(make_sparse(c.model, 0, ""))};
}

StepPart sparse_part(const Shapes& s) {
  const auto block = std::make_shared<MoeBlock>(moe_shape(*s.config), false, s.device);
  Subject subject = block->subject();
  subject.call = [block, call = subject.call](Laps& laps) { call(laps); };
  return {std::move(subject), s.calls * double(s.config->model.num_sparse_layers()), Bound::kGemm};
}

StepPart dense_part(const Shapes& s) {
  const auto& model = s.config->model;
  const FeedForwardKind kind = family_of(model).feed_forward;
  const bool gated = has_gate(kind);
  const auto gate_and_up = kind == FeedForwardKind::kGeGlu ? ops::geglu : ops::swiglu;
  const ops::GeluForm form = gelu_form(kind);
  const Weight gate = gated ? s.weight({s.F, s.D}) : Weight{}, up = s.weight({s.F, s.D}), down = s.weight({s.D, s.F});
  const FeedForwardSpec spec = make_feed_forward(model, 0, "", s.F);
  const Weight up_bias = s.bias_of(spec.up, s.F), down_bias = s.bias_of(spec.down, s.D);
  const auto forward = [=](const std::vector<Tensor>& in) {
    const Tensor x = add_bias(ops::linear(in[0], up), up_bias);
    const Tensor active = gated ? gate_and_up(ops::linear(in[0], gate), x) : ops::gelu(x, form);
    return std::vector<Tensor>{add_bias(ops::linear(active, down), down_bias)};
  };
  const double flops = 3 * 2 * (gated ? 3 : 2) * s.elements() * double(s.F);
  return {forward_backward("feed-forward", flops, {s.random({s.B, s.T, s.D})}, forward),
          s.calls * double(model.num_hidden_layers - model.num_sparse_layers()), Bound::kGemm};
}

StepPart loss_part(const Shapes& s) {
  const Weight weight = s.weight({s.V, s.D});
  const Tensor targets = s.random_ids({s.N});
  const double scale = 1 / double(s.N);
  const int64_t chunk = s.config->train.loss_chunk_tokens;
  Subject subject{"head and loss", {{"", 3 * 2 * s.elements() * double(s.V)}}, {}};
  const Tensor x = s.random({s.N, s.D}).requires_grad_();
  subject.call = [=](Laps& laps) {
    x.mutable_grad() = Tensor();
    laps.skip();
    const Tensor loss = ops::linear_cross_entropy(x, weight, targets, scale, chunk);
    torch::autograd::backward({loss}, {at::ones_like(loss)});
    laps.end(0);
  };
  return {std::move(subject), s.calls, Bound::kGemm};
}

std::vector<StepPart> update_parts(TrainState& state) {
  constexpr double kNormBytes = 4;  // for each parameter
  // Master and gradient, 4 bytes each, and the state are read and written.
  const double update_bytes = 2.0 * (8 + declare_optimizer(state.config.optimizer.name).bytes_per_element());
  const auto count = static_cast<double>(state.model.parameters.num_elements());
  Subject norm = simple_subject("gradient norm", kNormBytes * count, [&state] {
    const Tensor& grad = state.model.parameters.grad();
    ops::sum_of_squares(grad).sqrt();
  });
  const Tensor scale = at::ones({1}, state.model.parameters.grad().options()),
               changed = at::zeros({1}, scale.options().dtype(at::kLong));
  Subject adamw{"AdamW", {{"", update_bytes * count}}, [&state, scale, changed](Laps& laps) {
                  state.model.parameters.grad().fill_(1e-6f);  // the update before has set it to zero
                  laps.skip();
                  state.optimizer.set.apply({state.position.step + 1, 0.0, 1.0, {scale, changed}},
                                            {0, state.model.parameters.flat_size()});
                  laps.end(0);
                }};
  return {{std::move(norm), 1, Bound::kRead}, {std::move(adamw), 1, Bound::kCopy}};
}

}  // namespace

std::vector<StepPart> step_parts(TrainState& state) {
  const Shapes s(state.config, state.model.device());
  const auto& model = state.config.model;
  std::vector<StepPart> parts = {embedding_part(s), norm_part(s), projections_part(s)};
  if (family_of(model).positions == Positions::kRotary) parts.push_back(rotation_part(s));
  append_attention(s, parts);
  if (model.num_sparse_layers() > 0) parts.push_back(sparse_part(s));
  if (model.num_sparse_layers() < model.num_hidden_layers) parts.push_back(dense_part(s));
  parts.push_back(loss_part(s));
  for (auto& part : update_parts(state)) parts.push_back(std::move(part));
  return parts;
}

std::string verify_parts(const RunConfig& config, at::Device device) {
  return config.model.num_sparse_layers() > 0 ? MoeBlock(moe_shape(config), false, device).verify() : "";
}

}  // namespace athanor::bench
