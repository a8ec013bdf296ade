#pragma once
// The model as its configuration describes it. Names are those of `transformers`.

#include <cstdint>
#include <string>

#include "config/fields.h"

namespace athanor {

struct ModelConfig {
  std::string from;
  std::string family = "olmoe";
  int64_t hidden_size = 256;
  int64_t num_hidden_layers = 4;
  int64_t num_attention_heads = 8;
  int64_t num_key_value_heads = 0;
  int64_t intermediate_size = 128;
  int64_t num_experts = 0;
  int64_t num_experts_per_tok = 0;
  bool norm_topk_prob = false;
  int64_t vocab_size = 8192;
  int64_t max_position_embeddings = 2048;
  double rope_theta = 10000.0;
  double rms_norm_eps = 1e-5;
  double clip_qkv = 0.0;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;

  bool is_moe() const { return num_experts > 0; }
  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  /// num_key_value_heads with its default, one for each attention head.
  int64_t kv_heads() const { return num_key_value_heads > 0 ? num_key_value_heads : num_attention_heads; }

  bool operator==(const ModelConfig&) const = default;

  void describe(Fields& f) {
    f.field("from", from,
            "start from this folder (of transformers, or a run's models/step-…): its config.json replaces "
            "the fields below and its weights the initialisation; \"\" starts from scratch");
    f.field("family", family,
            "which decoder: olmo (dense, non-parametric LayerNorm) or olmoe (experts, RMSNorm, QK-norm)",
            one_of({"olmo", "olmoe"}));
    f.field("hidden_size", hidden_size, "width of the residual stream", at_least(1));
    f.field("num_hidden_layers", num_hidden_layers, "decoder layers", at_least(1));
    f.field("num_attention_heads", num_attention_heads, "query heads; must divide hidden_size", at_least(1));
    f.field("num_key_value_heads", num_key_value_heads, "key and value heads; 0 means one for each query head",
            at_least(0));
    f.field("intermediate_size", intermediate_size, "width of the feed-forward layer, or of each expert", at_least(1));
    f.field("num_experts", num_experts, "experts in each layer (olmoe)", at_least(0));
    f.field("num_experts_per_tok", num_experts_per_tok, "experts chosen for each token, the k of top-k (olmoe)",
            at_least(0));
    f.field("norm_topk_prob", norm_topk_prob, "scale the chosen router probabilities to sum to 1 (olmoe)");
    f.field("vocab_size", vocab_size, "rows of the embedding; at least the tokenizer's", at_least(2));
    f.field("max_position_embeddings", max_position_embeddings, "the longest sequence the model is meant for",
            at_least(2));
    f.field("rope_theta", rope_theta, "base of the rotary position embedding", positive());
    f.field("rms_norm_eps", rms_norm_eps, "epsilon of RMSNorm (olmoe; olmo's LayerNorm has 1e-5)", positive());
    f.field("clip_qkv", clip_qkv, "clamp queries, keys and values to ±this; 0 turns it off", not_negative());
    f.field("tie_word_embeddings", tie_word_embeddings, "the output layer shares the embedding's weight");
    f.field("initializer_range", initializer_range, "standard deviation of initial weights", positive());
  }
};

}  // namespace athanor
