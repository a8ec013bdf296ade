// A rank's part of a layer in numbers, from the configuration and the layout.

#include <algorithm>

#include "config/families.h"
#include "config/precision.h"
#include "layout/layer_memory.h"
#include "layout/traffic.h"

namespace athanor::inline layout {
namespace {

// As kGroupAlignment in ops/device/grouped.h.
constexpr double kRowAlignment = 8;

// The rows of memory that experts have on a device (ops/device/expert_rows.h). all_to_all has told the host how many
// choices come; with allgather each token of the expert group may have chosen as many experts of this rank as there
// are.
double room_for_rows(const LayerShape& s) {
  const bool unknown = s.dispatches && s.allgather;
  const double most = unknown ? s.received * std::min(s.choices, s.local) : s.rows;
  return most + s.local * (kRowAlignment - 1);
}

// Which parts the layers of a family have.
void set_parts(LayerShape& s, const ModelConfig& m) {
  const Family& family = family_of(m);
  s.sigmoid = m.score() == RouterScore::kSigmoid;
  s.layer_norm = family.norm != NormKind::kRms;
  s.scales_layer_norm = family.norm == NormKind::kLayer;
  s.biases = family.biases == Biases::kAll, s.value_biases = family.biases != Biases::kNone;
  s.gated = has_gate(family.feed_forward);
  s.parallel = family.parallel;
  s.shared_gate = !family.names.shared_gate.empty();
  s.norm_before = !family.names.attention_norm.empty(), s.norm_after = !family.names.attention_out_norm.empty();
  s.norm_whole = family.qk_norm == QkNorm::kWhole, s.norm_head = family.qk_norm == QkNorm::kHead;
  s.clip = m.clip_qkv > 0;
}

}  // namespace

LayerShape layer_shape(const RunConfig& config, int64_t seq_len, const Layout& layout, Multiplier multiplier) {
  const ModelConfig& m = config.model;
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const int64_t tensor = layout.tensor();
  LayerShape s{};
  s.tokens = number(config.train.micro_batch_size * seq_len);
  s.seq_len = number(seq_len);
  s.tensor = tensor > 1;
  s.shares_tokens = s.tensor && config.parallelism.sequence_parallel;
  s.own_tokens = s.shares_tokens ? s.tokens / number(tensor) : s.tokens;
  s.width = number(bytes_of(precision_of(config).compute));
  s.hidden = number(m.hidden_size), s.head_dim = number(m.head_dim());
  s.heads = number(m.num_attention_heads / tensor);
  s.kv_heads = number(std::max<int64_t>(1, m.kv_heads() / tensor));
  const double wide = number(std::max(m.head_dim(), m.value_dim()));
  s.q = s.heads * wide, s.kv = s.kv_heads * wide;
  s.rank = number(m.kv_lora_rank), s.query_rank = number(m.q_lora_rank), s.shared_key = number(m.qk_rope_head_dim);
  s.own_keys = s.heads * number(m.qk_nope_head_dim), s.queries = s.heads * s.head_dim;
  s.values = s.heads * number(m.value_dim());
  s.ffn = number(m.intermediate_size) / number(tensor);
  s.shared = number(m.shared_intermediate_size()) / number(tensor);
  s.expert_ffn = number(m.expert_intermediate_size()) / number(tensor);
  s.experts = number(m.num_experts), s.choices = number(m.num_experts_per_tok);
  s.local = s.experts / layout.expert();
  s.rows = s.tokens * s.choices;
  s.dispatches = layout.expert() > 1;
  s.allgather = config.moe.dispatch == DispatchKind::kAllGather;
  if (s.dispatches) {
    const double reached = probability_of_any(m.num_experts, m.num_experts / layout.expert(), m.num_experts_per_tok);
    s.sent = s.received = s.tokens * layout.expert() * (s.allgather ? 1 : reached);
  }
  set_parts(s, m);
  s.on_device = multiplier.on_device;
  s.expert_ranks = layout.expert();
  if (s.on_device) s.rows = room_for_rows(s);
  s.threads = multiplier.threads;
  s.packed = s.on_device ? 0 : multiplier.widens ? 4 : s.width;
  s.attention = {.sequences = number(config.train.micro_batch_size),
                 .seq_len = s.seq_len,
                 .heads = s.heads,
                 .kv_heads = s.kv_heads,
                 .head_dim = wide,
                 .bf16 = s.width == 2};
  if (config.data.attention_scope == AttentionScope::kDocument)
    s.attention.documents = count_table_documents(config.train.micro_batch_size, seq_len);
  s.attention.soft_cap = s.on_device && m.attn_logit_softcapping > 0;  // on a CPU's tiles both cost nothing
  s.attention.sinks = s.on_device && !family_of(m).names.sinks.empty();
  if (uses_cuda_libraries(config, multiplier)) s.attention.kernel = attention_kernel(s.attention);
  return s;
}

LayerShape LayerShape::in_window(int64_t window) const {
  LayerShape shape = *this;
  shape.attention.window = static_cast<double>(window);
  if (attention.kernel != AttentionKernel::kOther) shape.attention.kernel = attention_kernel(shape.attention);
  return shape;
}

}  // namespace athanor::inline layout
