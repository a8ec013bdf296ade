#include "verify/noise.h"

#include <algorithm>
#include <cmath>

#include "comm/sum_order.h"
#include "config/families.h"
#include "config/precision.h"
#include "ops/device_traits.h"

namespace athanor::inline verify {
namespace {

constexpr double kGain = 2, kTwoRuns = 1.4142135623730951;
constexpr double kUnit32 = 0x1p-24, kUnit16 = 0x1p-8;
constexpr int64_t kFewRoundings = 8;  // an activation function, a rotation

// Operations on a device by their inner lengths.
struct Chain {
  at::Device device = at::kCPU;
  double roundings = 0, operations = 0;

  void add(int64_t length) {
    roundings += static_cast<double>(length);
    operations += 1;
  }
  /// Adds a sum over `ranks` ranks: each part is rounded before it is sent, and after that each of the sums that follow
  /// one another.
  void add_over(int64_t ranks) {
    if (ranks > 1) add_stored(1 + comm::sum_order(ranks, device).additions);
  }
  void add_stored(int64_t count) {
    for (int64_t i = 0; i < count; ++i) add(1);
  }
  /// The variance of the relative error: sums in fp32, results stored with `unit`.
  double variance(double unit) const { return (roundings * kUnit32 * kUnit32 + operations * unit * unit) / 3; }
};

// Adds the lengths of a layer's products and sums; `back` means those of their transposed forms. What one rank adds in
// one product, tensor ranks add in two steps, and round in between: when attention and the feed-forward layer end in
// forward, when they begin in backward, and in both for the norm of queries and keys over all heads.
void add_layer(const RunConfig& config, int64_t layer, bool back, Chain& chain) {
  const ModelConfig& m = config.model;
  const int64_t seq_len = config.data.seq_len, tensor = config.parallelism.tensor_parallel_degree;
  const int64_t width = m.hidden_size, heads = m.num_attention_heads * m.head_dim(),
                projected = heads + 2 * m.kv_heads() * m.head_dim();
  const ops::DeviceTraits traits = ops::traits_of(chain.device);
  chain.add(width);                     // norm
  chain.add(back ? projected : width);  // queries, keys, values
  if (m.has_latents()) {                // what they are made of, and its norm
    const int64_t rank = std::max(m.q_lora_rank, m.kv_lora_rank);
    chain.add(back ? rank : width);
    chain.add(rank);
  }
  const Family& family = family_of(m);
  if (family.qk_norm != QkNorm::kNone) chain.add(heads);
  if (family.qk_norm == QkNorm::kWhole) chain.add_over(tensor);
  if (family.positions == Positions::kRotary) chain.add(kFewRoundings);  // rotation
  if (family.biases != Biases::kNone) chain.add(kFewRoundings);          // biases: queries, keys, values, the output
  chain.add(back ? seq_len : m.head_dim());                              // scores
  if (m.attn_logit_softcapping > 0) chain.add(kFewRoundings);            // cap
  if (!family.names.sinks.empty()) chain.add(kFewRoundings);             // sinks
  chain.add(seq_len);                                                    // softmax
  chain.add_stored(back ? traits.stored_by_attention_backward : traits.stored_by_attention);
  chain.add(back ? m.head_dim() : seq_len);  // weighted values
  chain.add(back ? width : heads);           // output projection
  chain.add_over(tensor);
  const bool both_norms = !family.names.attention_norm.empty() && !family.names.attention_out_norm.empty();
  if (both_norms) chain.add(width);  // norm after attention
  chain.add(1);                      // residual
  chain.add(width);                  // norm
  const bool sparse = m.is_sparse_layer(layer);
  const int64_t inner = sparse ? m.expert_intermediate_size() + m.shared_intermediate_size() : m.intermediate_size;
  if (sparse) {
    chain.add(back ? m.num_experts : width);  // router
    chain.add(m.num_experts);                 // scores
    chain.add(m.num_experts_per_tok);         // combine
    chain.add_stored(back ? traits.stored_by_experts_backward : 0);
  }
  const bool gated = has_gate(family.feed_forward);
  chain.add(back ? (gated ? 2 : 1) * inner : width);              // gate and up
  if (family.norm == NormKind::kLayer) chain.add(kFewRoundings);  // scales and biases of both norms
  if (sparse && family.expert_biases) chain.add(kFewRoundings);   // biases of router and experts
  chain.add(kFewRoundings);                                       // activation
  chain.add(back ? width : inner);                                // down
  chain.add_over(tensor);
  if (both_norms) chain.add(width);
  chain.add(1);  // residual
}

Chain whole_pass(const RunConfig& config, bool back, at::Device device) {
  const ModelConfig& m = config.model;
  Chain chain{device};
  for (int64_t layer = 0; layer < m.num_hidden_layers; ++layer) add_layer(config, layer, back, chain);
  chain.add(m.hidden_size);                                     // norm
  chain.add(back ? m.vocab_size : m.hidden_size);               // logits
  if (m.final_logit_softcapping > 0) chain.add(kFewRoundings);  // cap
  chain.add(m.vocab_size);                                      // softmax
  chain.add_over(config.parallelism.tensor_parallel_degree);
  return chain;
}

// The variance of forward and backward: backward starts from the values that forward computed, and multiplies with
// those that it kept.
double pass_variance(const RunConfig& config, double unit, at::Device device) {
  return 2 * whole_pass(config, false, device).variance(unit) + whole_pass(config, true, device).variance(unit);
}

// The angles of rotary positions are the same fp32 numbers in every layout, so their errors show only in a comparison
// with exact angles. An angle is position · frequency, at most its position, after four roundings (exponent, power,
// reciprocal, product). Errors of layers do not average out: all layers use the same angles, so their errors add up.
double angle_variance(const RunConfig& config) {
  if (family_of(config.model).positions != Positions::kRotary) return 0;
  const double angle = static_cast<double>(config.model.num_hidden_layers * config.data.seq_len) * kUnit32;
  return angle * angle * 4 / 3;
}

}  // namespace

Noise::Noise(const RunConfig& small, int data_ranks, Reference reference, c10::Device device) {
  const double unit = precision_of(small).rounds_weights() ? kUnit16 : kUnit32;
  const Chain forward = whole_pass(small, false, device);
  Chain batch;
  batch.add(small.train.global_batch_size * small.data.seq_len);
  const bool exact = reference == Reference::kPortable;
  const double factor = kDeviations * (exact ? 1 : kTwoRuns) * kGain, angles = exact ? angle_variance(small) : 0;
  const double pass = pass_variance(small, unit, device);
  loss_ = factor * std::sqrt(forward.variance(unit) + batch.variance(kUnit32) + angles);
  gradient_ = factor * std::sqrt(pass + batch.variance(kUnit32) + 3 * angles);
  RunConfig whole = small;
  whole.parallelism.tensor_parallel_degree = 1;
  layout_factor_ = pass / pass_variance(whole, unit, at::kCPU);
  if (precision_of(small).rounds_gradients()) {
    // Rounded before it is sent, in at most two sums over data ranks, and in the sum over replicating tensor or
    // pipeline ranks (layout/holding.h); in only one of the two runs.
    const int64_t tensor = small.parallelism.tensor_parallel_degree;
    const auto roundings_over = [&](int64_t ranks) { return comm::sum_order(ranks, device).roundings; };
    const int64_t of_data = 1 + std::max<int64_t>(2, roundings_over(data_ranks)),
                  of_replicas = 1 + roundings_over(tensor);
    const bool beside = tensor * small.parallelism.pipeline_parallel_degree > 1;
    const int64_t roundings = (data_ranks > 1 ? of_data : 0) + (beside ? of_replicas : 0);
    reduction_variance_ = kUnit16 * kUnit16 * static_cast<double>(roundings) / 3;
    gradient_ = std::hypot(gradient_, kDeviations * std::sqrt(reduction_variance_));
  }
}

}  // namespace athanor::inline verify
