#include "arch/flops.h"

#include "arch/model_spec.h"

namespace athanor::inline arch {

FlopCount count_layer_flops(const LayerSpec& layer, int64_t num_sequences, int64_t seq_len) {
  const double length = static_cast<double>(seq_len), tokens = static_cast<double>(num_sequences) * length;
  return {.attention_projections = layer.attention.projection_flops(tokens),
          .attention_scores = layer.attention.score_flops(tokens, length),
          .feed_forward = std::visit([&](const auto& block) { return block.flops(tokens); }, layer.feed_forward)};
}

double count_output_flops(const ModelConfig& model, int64_t num_tokens) {
  return matmul_flops(static_cast<double>(num_tokens), static_cast<double>(model.vocab_size),
                      static_cast<double>(model.hidden_size));
}

FlopCount count_forward_flops(const ModelConfig& model, int64_t num_sequences, int64_t seq_len) {
  FlopCount sum{.output = count_output_flops(model, num_sequences * seq_len)};
  for (const LayerSpec& layer : make_model_spec(model).layers) {
    const FlopCount one = count_layer_flops(layer, num_sequences, seq_len);
    sum.attention_projections += one.attention_projections;
    sum.attention_scores += one.attention_scores;
    sum.feed_forward += one.feed_forward;
  }
  return sum;
}

double count_train_flops(const ModelConfig& model, int64_t num_sequences, int64_t seq_len) {
  return 3 * count_forward_flops(model, num_sequences, seq_len).total();
}

double count_executed_flops(const ModelConfig& model, const RecomputeKinds& kinds, int64_t num_sequences,
                            int64_t seq_len) {
  const double length = static_cast<double>(seq_len), tokens = static_cast<double>(num_sequences) * length;
  double again = 0;
  for (const LayerSpec& layer : make_model_spec(model).layers) {
    const FlopCount one = count_layer_flops(layer, num_sequences, seq_len);
    if (kinds.attention || kinds.layer) again += one.attention_projections + one.attention_scores;
    if (kinds.moe || kinds.layer) again += one.feed_forward;
    again += layer.attention.logit_flops(tokens, length);
  }
  return count_train_flops(model, num_sequences, seq_len) + again;
}

}  // namespace athanor::inline arch
