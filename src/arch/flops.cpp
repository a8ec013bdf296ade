#include "arch/flops.h"

namespace athanor {
namespace {

double matmul(double m, double n, double k) { return 2 * m * n * k; }

}  // namespace

FlopCount count_forward_flops(const ModelConfig& m, int64_t num_sequences, int64_t seq_len) {
  const auto d = static_cast<double>(m.hidden_size), f = static_cast<double>(m.intermediate_size);
  const auto q = static_cast<double>(m.num_attention_heads * m.head_dim());
  const auto kv = static_cast<double>(m.kv_heads() * m.head_dim());
  const auto layers = static_cast<double>(m.num_hidden_layers), s = static_cast<double>(seq_len);
  const double tokens = static_cast<double>(num_sequences) * s;
  // A token attends to itself and those before it: (s + 1) / 2 keys on average.
  const double attended = (s + 1) / 2;

  FlopCount count;
  count.attention_projections = layers * (matmul(tokens, q, d) + 2 * matmul(tokens, kv, d) + matmul(tokens, d, q));
  count.attention_scores = layers * 2 * matmul(tokens, attended, q);
  const auto sparse_layers = static_cast<double>(m.num_sparse_layers());
  const auto expert_f = static_cast<double>(m.expert_intermediate_size());
  const auto passed = static_cast<double>(m.num_experts_per_tok + m.num_shared_experts);
  count.feed_forward = (layers - sparse_layers) * 3 * matmul(tokens, f, d) +
                       sparse_layers * (passed * 3 * matmul(tokens, expert_f, d) +
                                        matmul(tokens, static_cast<double>(m.num_experts), d));
  count.output = matmul(tokens, static_cast<double>(m.vocab_size), d);
  return count;
}

double count_train_flops(const ModelConfig& model, int64_t num_sequences, int64_t seq_len) {
  return 3 * count_forward_flops(model, num_sequences, seq_len).total();
}

}  // namespace athanor
