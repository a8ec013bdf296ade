#include "arch/memory.h"

#include <algorithm>
#include <numeric>

#include "arch/inventory.h"
#include "base/error.h"
#include "config/families.h"

namespace athanor {

HeldElements count_held_elements(const ModelConfig& model, int64_t expert_degree) {
  HeldElements held;
  for (const auto& spec : make_inventory(model)) {
    if (spec.is_expert()) {
      held.expert += spec.num_elements() / expert_degree;
    } else {
      held.dense += spec.num_elements();
    }
  }
  return held;
}

StateShards count_state_shards(const ParallelismConfig& parallelism, const Layout& layout) {
  const int64_t data = layout.data(), expert_data = layout.expert_data(), shard = layout.shard();
  if (parallelism.sharding == "none") return {1, 1};
  if (parallelism.sharding == "optimizer") return {expert_data, expert_data};
  if (parallelism.sharding == "hierarchical") return {shard, shard / std::gcd(shard, int64_t{layout.expert()})};
  ATHANOR_CHECK(parallelism.sharding == "ep_aware",
                "parallelism.sharding: expected none, optimizer, ep_aware or hierarchical, got {}",
                parallelism.sharding);
  return {data, expert_data};
}

StateBytes count_state_bytes(HeldElements held, StateShards shards, bool bf16) {
  const auto share = [](int64_t elements, int64_t ranks) { return (elements + ranks - 1) / ranks; };
  const int64_t owned = share(held.dense, shards.dense) + share(held.expert, shards.expert);
  return {.weights = held.total() * (bf16 ? 2 : 4),
          .master = bf16 ? owned * 2 : 0,
          .moments = owned * 8,
          .gradient = held.total() * 4};
}

MemoryNeed estimate_train_memory(const RunConfig& config, int64_t seq_len) {
  const ModelConfig& m = config.model;
  const auto parameters = static_cast<double>(count_parameters(m));
  const bool bf16 = config.train.dtype == "bfloat16";
  const double width = bf16 ? 2 : 4;  // bytes of an activation
  MemoryNeed need;
  // fp32 master, two moments and gradient. In bf16 the master's upper half, rounded, is what forward and backward read.
  need.state_bytes = parameters * 16;

  const double tokens = static_cast<double>(config.train.micro_batch_size) * static_cast<double>(seq_len);
  const auto d = static_cast<double>(m.hidden_size), f = static_cast<double>(m.intermediate_size);
  const auto q = static_cast<double>(m.num_attention_heads * m.head_dim());
  const auto kv = static_cast<double>(m.kv_heads() * m.head_dim());
  const bool qk_norm = family_of(m).qk_norm != QkNorm::kNone;
  // Kept by attention: the norm's input and output, q k v as projected (for QK-norm) and as turned, its output.
  const double attention = 2 * d + (qk_norm ? 2 : 1) * (q + kv) + kv + q;
  // Kept by a feed-forward pass: norm's input and output, then gate, up and activation for each expert choice, and for
  // experts the gathered input and the output before the combine.
  const auto choices = static_cast<double>(m.num_experts_per_tok);
  const double dense = 3 * f, shared = 3 * static_cast<double>(m.shared_intermediate_size());
  const double sparse = shared + choices * (3 * static_cast<double>(m.expert_intermediate_size()) + 2 * d);
  const auto layers = static_cast<double>(m.num_hidden_layers);
  const auto sparse_layers = static_cast<double>(m.num_sparse_layers());
  need.activation_bytes =
      tokens * (layers * (attention + 2 * d) + (layers - sparse_layers) * dense + sparse_layers * sparse) * width;

  const auto chunk =
      static_cast<double>(std::min<int64_t>(config.train.loss_chunk_tokens, static_cast<int64_t>(tokens)));
  const double logits = chunk * static_cast<double>(m.vocab_size) * (4 + 2 * width);  // fp32 softmax, logits, gradient
  const double wider = std::max(sparse_layers < layers ? dense + 2 * d : 0, sparse_layers > 0 ? sparse : 0);
  const double layer_backward = tokens * (wider + 4 * d) * width;
  const double output_gradient = static_cast<double>(m.vocab_size) * d * width;  // before it is added into its bucket
  need.transient_bytes = std::max(logits + output_gradient, layer_backward);
  return need;
}

MemoryNeed estimate_train_memory(const RunConfig& config, int64_t seq_len, const Layout& layout) {
  MemoryNeed need = estimate_train_memory(config, seq_len);
  const bool bf16 = config.train.dtype == "bfloat16";
  const HeldElements held = count_held_elements(config.model, layout.expert());
  need.state_bytes =
      static_cast<double>(count_state_bytes(held, count_state_shards(config.parallelism, layout), bf16).total());
  if (layout.data() > 1 && config.train.reduce_dtype == "bfloat16")
    need.transient_bytes += 2 * static_cast<double>(held.total());  // rounded gradients, until all of them are summed
  if (layout.expert() > 1) {
    // On their way: a rank's own rows and what it sends or gets, at most to and from all others.
    const auto reached = std::min<int64_t>(config.model.num_experts_per_tok, layout.expert());
    const auto copies = static_cast<double>(config.moe.dispatch == "allgather" ? layout.expert() : reached);
    const auto tokens = static_cast<double>(config.train.micro_batch_size * seq_len);
    need.transient_bytes += 2 * copies * tokens * static_cast<double>(config.model.hidden_size) * (bf16 ? 2 : 4);
  }
  return need;
}

}  // namespace athanor
