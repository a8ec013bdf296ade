#include "arch/flops.h"

namespace athanor::inline arch {
namespace {

double matmul(double m, double n, double k) { return 2 * m * n * k; }

}  // namespace

FlopCount count_layer_flops(const ModelConfig& m, bool sparse, int64_t num_sequences, int64_t seq_len) {
  const auto d = static_cast<double>(m.hidden_size), f = static_cast<double>(m.intermediate_size);
  const auto q = static_cast<double>(m.num_attention_heads * m.head_dim());
  const auto kv = static_cast<double>(m.kv_heads() * m.head_dim());
  const auto s = static_cast<double>(seq_len), tokens = static_cast<double>(num_sequences) * s;
  // A token attends to itself and those before it: (s + 1) / 2 keys on average.
  const double attended = (s + 1) / 2;

  FlopCount count;
  count.attention_projections = matmul(tokens, q, d) + 2 * matmul(tokens, kv, d) + matmul(tokens, d, q);
  count.attention_scores = 2 * matmul(tokens, attended, q);
  if (sparse) {
    const auto expert_f = static_cast<double>(m.expert_intermediate_size());
    const auto passed = static_cast<double>(m.num_experts_per_tok + m.num_shared_experts);
    count.feed_forward =
        passed * 3 * matmul(tokens, expert_f, d) + matmul(tokens, static_cast<double>(m.num_experts), d);
  } else {
    count.feed_forward = 3 * matmul(tokens, f, d);
  }
  return count;
}

double count_output_flops(const ModelConfig& model, int64_t num_tokens) {
  return matmul(static_cast<double>(num_tokens), static_cast<double>(model.vocab_size),
                static_cast<double>(model.hidden_size));
}

FlopCount count_forward_flops(const ModelConfig& m, int64_t num_sequences, int64_t seq_len) {
  const FlopCount dense = count_layer_flops(m, false, num_sequences, seq_len);
  const FlopCount sparse = count_layer_flops(m, true, num_sequences, seq_len);
  const auto layers = static_cast<double>(m.num_hidden_layers);
  const auto sparse_layers = static_cast<double>(m.num_sparse_layers());
  return {.attention_projections = layers * dense.attention_projections,
          .attention_scores = layers * dense.attention_scores,
          .feed_forward = (layers - sparse_layers) * dense.feed_forward + sparse_layers * sparse.feed_forward,
          .output = count_output_flops(m, num_sequences * seq_len)};
}

double count_train_flops(const ModelConfig& model, int64_t num_sequences, int64_t seq_len) {
  return 3 * count_forward_flops(model, num_sequences, seq_len).total();
}

}  // namespace athanor::inline arch
