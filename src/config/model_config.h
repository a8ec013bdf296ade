#pragma once
// The model section of the configuration. Field names are those of `transformers`; families.h defines how each family
// uses them.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/ranges.h"
#include "config/rope_scaling.h"

namespace athanor::inline config {

/// Returns the names of all families in families.h.
std::vector<std::string> family_names();

/// The function from a router's logits to scores in fp32. Everything else (weights, top-k, losses) is computed from
/// scores.
enum class RouterScore {
  kSoftmax,  ///< over all experts
  kSigmoid,  ///< a sigmoid for each expert separately (DeepSeek-V3, §2.1.2)
};
template <>
inline constexpr auto kWords<RouterScore> = words<RouterScore>({{"softmax", RouterScore::kSoftmax},
                                                                {"sigmoid", RouterScore::kSigmoid}});

/// Keys of the model fields that the user wrote in addition to `from`; their values must agree with the model in that
/// folder. This is not part of the model: all objects compare equal.
struct WrittenFields {
  std::vector<std::string> keys;
  bool resolved = false;  ///< the fields now have the values of the model in `from` (checkpoint/model_identity.h)
  bool operator==(const WrittenFields&) const { return true; }
};

struct ModelConfig {
  std::string from;
  std::string family = "olmoe";
  int64_t hidden_size = 256;
  int64_t num_hidden_layers = 4;
  int64_t num_attention_heads = 8;
  int64_t num_key_value_heads = 0;
  int64_t attention_head_dim = 0;  ///< the field "head_dim"
  int64_t intermediate_size = 128;
  int64_t num_experts = 0;
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;
  int64_t decoder_sparse_step = 1;
  std::vector<int64_t> mlp_only_layers;
  bool norm_topk_prob = false;
  std::string router_score = "softmax";
  double routed_scaling_factor = 1.0;
  int64_t num_shared_experts = 0;
  int64_t shared_expert_intermediate_size = 0;
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  int64_t n_group = 0;
  int64_t topk_group = 0;
  int64_t vocab_size = 8192;
  int64_t max_position_embeddings = 2048;
  double rope_theta = 10000.0;
  double window_rope_theta = 0.0;
  double partial_rotary_factor = 1.0;
  double rms_norm_eps = 1e-5;
  double clip_qkv = 0.0;
  int64_t sliding_window = 0;
  std::vector<int64_t> full_attention_layers;
  int64_t query_pre_attn_scalar = 0;
  bool scale_attn_by_inverse_layer_idx = false;
  double attn_logit_softcapping = 0.0;
  double final_logit_softcapping = 0.0;
  double swiglu_alpha = 0.0;
  double swiglu_limit = 0.0;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  RopeScaling rope_scaling;
  WrittenFields written;  ///< filled by the reader if `from` is set

  /// Nothing if router_score is no such word, as it may be in a model that has not been checked.
  std::optional<RouterScore> score() const { return find_value<RouterScore>(router_score); }
  bool is_moe() const { return num_experts > 0; }
  /// True if keys and values are made of a vector of each token with kv_lora_rank dims (DeepSeek-V2, §2.1).
  bool has_latents() const { return kv_lora_rank > 0; }
  /// Dims of a head that rotary positions turn; the others stay as they are.
  int64_t rotated_dims() const {
    if (has_latents()) return qk_rope_head_dim;
    return static_cast<int64_t>(static_cast<double>(head_dim()) * partial_rotary_factor);
  }
  /// The most tokens of a text that is generated or evaluated: with longrope, those for which short_factor is.
  int64_t text_positions() const {
    const bool longrope = rope_scaling.type() == RopeType::kLongRope;
    const int64_t original = longrope ? rope_scaling.original_max_position_embeddings : 0;
    return original > 0 ? std::min(original, max_position_embeddings) : max_position_embeddings;
  }
  /// Dims of a head's queries and keys, and of its values.
  int64_t head_dim() const {
    if (has_latents()) return qk_nope_head_dim + qk_rope_head_dim;
    return attention_head_dim > 0 ? attention_head_dim : hidden_size / num_attention_heads;
  }
  int64_t value_dim() const { return has_latents() ? v_head_dim : head_dim(); }
  /// num_key_value_heads, or its default: one for each attention head.
  int64_t kv_heads() const { return num_key_value_heads > 0 ? num_key_value_heads : num_attention_heads; }
  int64_t expert_intermediate_size() const {
    return moe_intermediate_size > 0 ? moe_intermediate_size : intermediate_size;
  }
  /// Width of the single feed-forward layer that the shared experts form together.
  int64_t shared_intermediate_size() const {
    return shared_expert_intermediate_size > 0 ? shared_expert_intermediate_size
                                               : num_shared_experts * expert_intermediate_size();
  }
  /// rope_theta of layers with a window.
  double theta_in_windows() const { return window_rope_theta > 0 ? window_rope_theta : rope_theta; }
  /// True if layers with a window are rotated by other angles than those without.
  bool rotates_windows_apart() const;
  /// Returns how many tokens a token of this layer, counted from 0, attends to, itself included; 0: all before it.
  int64_t window_of(int64_t layer) const;
  /// True if this layer, counted from 0, has experts.
  bool is_sparse_layer(int64_t layer) const;
  int64_t num_sparse_layers() const;
  /// norm_topk_prob, which is always true in some families.
  bool norms_topk() const;

  bool operator==(const ModelConfig&) const = default;

  void describe(Fields& f) {
    f.field("from", from,
            "start from this folder (of transformers, or a run's models/step-…): its config.json replaces "
            "the fields below and its weights, if it has any, the initialisation; \"\" starts from scratch");
    f.field("family", family,
            "which decoder (docs/families.md has a table): the name is model_type of its class in transformers",
            one_of(family_names()));
    f.field("hidden_size", hidden_size, "width of the residual stream", between(1, kMaxWidth));
    f.field("num_hidden_layers", num_hidden_layers, "decoder layers", between(1, kMaxLayers));
    f.field("num_attention_heads", num_attention_heads, "query heads", between(1, kMaxWidth));
    f.field("num_key_value_heads", num_key_value_heads, "key and value heads; 0 means one for each query head",
            between(0, kMaxWidth));
    f.field("head_dim", attention_head_dim,
            "width of a head, in families where it is free; 0 means hidden_size / num_attention_heads",
            between(0, kMaxWidth));
    f.field("intermediate_size", intermediate_size,
            "width of the feed-forward layer, or of each expert where moe_intermediate_size is 0",
            between(1, kMaxWidth));
    f.field("num_experts", num_experts, "experts in each sparse layer, in families with experts",
            between(0, kMaxExperts));
    f.field("num_experts_per_tok", num_experts_per_tok, "experts chosen for each token, the k of top-k",
            between(0, kMaxExperts));
    f.field("moe_intermediate_size", moe_intermediate_size,
            "width of each expert, in families whose layers may be dense or sparse; 0 means intermediate_size",
            between(0, kMaxWidth));
    f.field("decoder_sparse_step", decoder_sparse_step,
            "one layer in this many has experts, the others are dense, in families whose layers may be either",
            between(1, kMaxLayers));
    f.field("mlp_only_layers", mlp_only_layers, "layers without experts, counted from 0, in the same families");
    f.field("norm_topk_prob", norm_topk_prob,
            "scale the chosen scores to sum to 1 (always in mixtral and gpt_oss; cannot be exported in deepseek_v2)");
    f.field(
        "router_score", router_score,
        "how scores follow from the router's logits: a softmax over all experts, or each expert's sigmoid; not set: as "
        "in the family's class, sigmoid in deepseek_v3 alone, and the other cannot be exported",
        one_of(words_of<RouterScore>()));
    f.field("routed_scaling_factor", routed_scaling_factor,
            "multiplies the weights of the chosen experts (other than 1 can be exported in deepseek_v2 and deepseek_v3 "
            "alone)",
            fp32_up_to(kMaxScale));
    f.field(
        "num_shared_experts", num_shared_experts,
        "experts that every token passes through in addition to the chosen ones (at least 1 in qwen2_moe, deepseek_v2 "
        "and deepseek_v3; they cannot be exported in others)",
        between(0, kMaxExperts));
    f.field("shared_expert_intermediate_size", shared_expert_intermediate_size,
            "width of all shared experts together; 0: num_shared_experts times that of an expert",
            between(0, kMaxWidth));
    f.field("q_lora_rank", q_lora_rank,
            "dims of the vector that a token's queries are made of (deepseek_v2, deepseek_v3); 0: of the token itself",
            between(0, kMaxWidth));
    f.field("kv_lora_rank", kv_lora_rank,
            "dims of the vector that a token's keys and values are made of (deepseek_v2, deepseek_v3)",
            between(0, kMaxWidth));
    f.field("qk_nope_head_dim", qk_nope_head_dim,
            "dims of a head's queries and keys that positions do not turn (deepseek_v2, deepseek_v3)",
            between(0, kMaxWidth));
    f.field("qk_rope_head_dim", qk_rope_head_dim,
            "dims that they turn, which all heads' keys share (deepseek_v2, deepseek_v3)", between(0, kMaxWidth));
    f.field("v_head_dim", v_head_dim, "dims of a head's values (deepseek_v2, deepseek_v3)", between(0, kMaxWidth));
    f.field("n_group", n_group,
            "groups of experts, of which a token chooses topk_group first (deepseek_v2, deepseek_v3); 0: no groups",
            between(0, kMaxExperts));
    f.field("topk_group", topk_group, "groups from which a token's experts come (deepseek_v2, deepseek_v3)",
            between(0, kMaxExperts));
    f.field("vocab_size", vocab_size, "rows of the embedding; at least the tokenizer's", between(2, kMaxVocabulary));
    f.field("max_position_embeddings", max_position_embeddings, "the longest sequence for which the model is made",
            between(2, kMaxPositions));
    f.field("rope_theta", rope_theta, "base of the rotary position embedding", between(1.0, 1e12));
    f.field("window_rope_theta", window_rope_theta, "the base in layers with a window (gemma3_text); 0: rope_theta",
            zero_or_between(1.0, 1e12));
    f.field("partial_rotary_factor", partial_rotary_factor,
            "share of a head's dims that rotary positions turn, the first ones (gpt_neox, phi3)", between(0.0, 1.0));
    f.field("rms_norm_eps", rms_norm_eps, "epsilon of RMSNorm, and of LayerNorm with weights (that of olmo has 1e-5)",
            fp32_up_to(1));
    f.field("clip_qkv", clip_qkv, "clamp queries, keys and values to ±this (olmo, olmoe); 0 turns it off",
            zero_or_fp32_up_to(kMaxFp32));
    f.field("sliding_window", sliding_window,
            "a token attends to itself and the tokens before it, this many in all (mistral, mixtral, starcoder2, phi3, "
            "olmo3, qwen2, qwen2_moe, qwen3, qwen3_moe, gemma2, gemma3_text, gpt_oss); 0: to all before it",
            between(0, kMaxPositions));
    f.field("full_attention_layers", full_attention_layers,
            "layers without the window, counted from 0 (olmo3, qwen2, qwen2_moe, qwen3, gemma2, gemma3_text, gpt_oss); "
            "[]: none, but in gemma2 and gpt_oss every second, in olmo3 every fourth, in gemma3_text every sixth");
    f.field("query_pre_attn_scalar", query_pre_attn_scalar,
            "products of queries and keys are divided by the square root of this (gemma2, gemma3_text); 0: head_dim",
            between(0, kMaxWidth));
    f.field("scale_attn_by_inverse_layer_idx", scale_attn_by_inverse_layer_idx,
            "logits of attention are divided by the number of the layer, counted from 1 (gpt2)");
    f.field("attn_logit_softcapping", attn_logit_softcapping,
            "logits of attention become cap · tanh(logit / cap) with this cap (gemma2); 0: no cap",
            zero_or_fp32_up_to(kMaxScale));
    f.field("final_logit_softcapping", final_logit_softcapping,
            "the same for the logits of the output layer (gemma2, gemma3_text); 0: no cap",
            zero_or_fp32_up_to(kMaxScale));
    f.field("swiglu_alpha", swiglu_alpha,
            "experts compute gate · sigmoid(alpha · gate) · (up + 1) with this alpha (gpt_oss); 0: 1.702",
            zero_or_fp32_up_to(kMaxScale));
    f.field("swiglu_limit", swiglu_limit, "gate is at most this, and up within ± this (gpt_oss); 0: 7",
            zero_or_fp32_up_to(kMaxScale));
    f.field("tie_word_embeddings", tie_word_embeddings, "the output layer shares the embedding's weight");
    f.field("initializer_range", initializer_range, "standard deviation of initial weights", fp32_up_to(100));
    f.table("rope_scaling", rope_scaling, "Rotary positions for longer contexts, as transformers names them.");
  }
};

}  // namespace athanor::inline config
