#pragma once
// The differences between model families, as data. A family that consists of known parts is a row in families.cpp;
// docs/families.md shows how to add one.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace athanor::inline config {

enum class NormKind {
  kRms,                     // RMSNorm with a scale
  kLayer,                   // LayerNorm with scale and bias
  kLayerWithoutParameters,  // LayerNorm with neither scale nor bias (OLMo)
};

/// How attention knows where a token stands.
enum class Positions {
  kRotary,   // queries and keys are rotated
  kLearned,  // a vector of each position is added to the embedding
};

/// The dense feed-forward of a layer.
enum class FeedForwardKind {
  kSwiGlu,    // down(silu(gate(x)) · up(x))
  kGelu,      // down(gelu(up(x)))
  kGeluTanh,  // the same with GELU in the approximation with tanh
  kGeGlu,     // down(gelu(gate(x)) · up(x)), GELU in the approximation with tanh
};

/// Whether it has the third matrix, of the gate.
inline bool has_gate(FeedForwardKind kind) {
  return kind == FeedForwardKind::kSwiGlu || kind == FeedForwardKind::kGeGlu;
}

/// Returns the names of the activation in config.json.
std::vector<std::string> activation_names(FeedForwardKind kind);

/// Which linear layers have biases. Router and experts have none, unless Family::expert_biases; the output layer has
/// none.
enum class Biases {
  kNone,
  kQkv,  // queries, keys and values (Qwen2)
  kAll,  // all of a layer (GPT-2); in a family with experts those of attention (gpt-oss)
};

/// RMSNorm of queries and keys before the rotary embedding.
enum class QkNorm {
  kNone,
  kWhole,  // over a token's whole projection (OLMoE)
  kHead,   // over each head, with one scale for all (Qwen3)
};

/// The names of parameters in `transformers`, without ".weight" and ".bias". Those from `attention_norm` on are of a
/// layer, and stand after `layers` and its number; those of attention and the feed-forward after the block's name. A
/// norm without a name does not exist: so these names say where a layer has norms, before a part or after it.
struct FamilyNames {
  std::string embedding = "model.embed_tokens", positions = "", layers = "model.layers", final_norm = "model.norm",
              head = "lm_head";
  std::string attention_norm = "input_layernorm", attention = "self_attn", attention_out_norm = "",
              feed_forward_norm = "post_attention_layernorm", feed_forward = "mlp", feed_forward_out_norm = "";
  std::string query = "q_proj", key = "k_proj", value = "v_proj", attention_out = "o_proj", query_norm = "q_norm",
              key_norm = "k_norm";
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj", router = "gate", experts = "experts",
              shared_experts = "shared_experts",
              shared_gate = "",  ///< a gate of the shared experts' result; "": there is none
      router_bias = "",          ///< what is added to scores where experts are chosen; "": files have none
      sinks = "";                ///< a logit of each head that has no key; "": there are none
  /// Of attention with latents. In files key_value_down has latent and shared_key, and key_value_up the key and the
  /// value that are made of them.
  std::string query_down = "q_a_proj", query_down_norm = "q_a_layernorm", query_up = "q_b_proj", latent = "kv_a_proj",
              shared_key = "k_rope_proj", key_value_norm = "kv_a_layernorm", key_value_down = "kv_a_proj_with_mqa",
              key_value_up = "kv_b_proj";
  std::string fused_qkv = "";      ///< the tensor in files that has query, key and value; "" if none has
  std::string fused_gate_up = "";  ///< that which has gate and up of a dense layer
  /// Those which have all experts, as [experts, in, out], gate and up in turns; their biases end with "_bias". "": each
  /// expert has tensors of its own.
  std::string stacked_gate_up = "", stacked_down = "";
};

struct Family {
  std::string name;          ///< model.family, and model_type in `transformers`
  std::string architecture;  ///< its class in `transformers`; "": it has none, and there are no folders of its models
  FamilyNames names = {};
  NormKind norm = NormKind::kRms;
  double fixed_norm_eps = 0;  ///< epsilon of all norms; 0: that of the model (rms_norm_eps)
  double norm_offset = 0;     ///< is added to the scale of every norm: 1 if the scales begin as 0
  QkNorm qk_norm = QkNorm::kNone;
  bool scales_queries = false;    ///< has model.query_pre_attn_scalar
  bool scales_by_layer = false;   ///< has model.scale_attn_by_inverse_layer_idx
  bool caps_attention = false;    ///< has model.attn_logit_softcapping
  bool caps_output = false;       ///< has model.final_logit_softcapping
  bool scales_embedding = false;  ///< the embedding's rows are multiplied by √hidden_size
  Positions positions = Positions::kRotary;
  FeedForwardKind feed_forward = FeedForwardKind::kSwiGlu;
  Biases biases = Biases::kNone;
  bool expert_biases = false;  ///< the router and experts have biases, too
  bool clamps_swiglu = false;  ///< experts compute model.swiglu_alpha's unit (base/gated_unit.h) in place of SwiGLU
  std::string bias_member = "attention_bias";  ///< tells in config.json whether there are biases; "": nothing does
  std::string activation = "silu";             ///< its name in config.json, as it is written
  bool transposed = false;                     ///< files have the matrices of layers as [in, out]
  bool qkv_by_heads = false;        ///< fused_qkv has query, key and value of each head, and not all queries first
  bool parallel = false;            ///< attention and feed-forward read the same sum, and both are added to it
  bool partial_rotation = false;    ///< has model.partial_rotary_factor
  bool longrope_alone = false;      ///< among types in model.rope_scaling it has longrope alone
  bool small_residuals = false;     ///< attention_out and down start smaller, by 1/sqrt(2 · num_hidden_layers)
  bool sparse = false;              ///< has experts
  bool has_shared_experts = false;  ///< in each sparse layer, in its class too
  bool mixed_layers = false;        ///< experts have a separate width, and some layers may be dense
  bool latent_attention = false;    ///< has model.kv_lora_rank and the other sizes of latent attention
  bool deepseek_experts = false;    ///< has model.n_group; its config.json has routed_scaling_factor, and the number of
                                    ///< dense layers, which come first
  RouterScore router_score = RouterScore::kSoftmax;  ///< the only one that its class has
  bool grouped_keys = true;                          ///< several query heads may share a key head
  bool free_head_dim = false;                        ///< head_dim may be other than hidden_size / num_attention_heads
  bool heads_divide_hidden = true;                   ///< `transformers` requires it even if head_dim is given
  bool clips_qkv = false;                            ///< has model.clip_qkv
  bool norms_topk = false;             ///< as if model.norm_topk_prob were true, which is no member of config.json
  bool has_window = false;             ///< has model.sliding_window
  bool mixes_windows = false;          ///< layers may differ in it: layer_types in config.json
  bool windows_alternate = false;      ///< without layer_types, of the first layers only every second has the window
  bool sliding_window_switch = false;  ///< in config.json, sliding_window counts only if use_sliding_window is true
  /// One layer in this many attends without the window, where model.full_attention_layers is empty; 0: none does.
  int64_t full_attention_every = 0;
  bool windows_unscaled = false;    ///< layers with a window rotate without model.rope_scaling …
  bool windows_own_theta = false;   ///< … and have model.window_rope_theta
  std::string window_pattern = "";  ///< the member of older config.json that is full_attention_every

  /// The names in config.json that differ from those of Llama: {"hidden_size", "n_embd"}, …
  std::map<std::string, std::string> config_names;
  /// Those of them that `transformers` also reads under the name of Llama.
  std::set<std::string> config_aliases;
  /// The rates of dropout in config.json, which are written as 0 unless the folder of an imported model had others.
  std::vector<std::string> dropouts = {"attention_dropout"};
  /// What the class itself calls parts of names, which files have otherwise: {".mlp.", ".block_sparse_moe."}, …
  std::map<std::string, std::string> names_of_class;
  /// The ends of names of tensors in files that every version can compute, and older versions stored.
  std::vector<std::string> buffers = {".rotary_emb.inv_freq"};
  /// The layer whose tensors its class leaves out if the model has no such layer: one that predicts a further token.
  std::optional<int64_t> layer_left_out;
  /// Values that `transformers` assumes for fields that config.json lacks.
  ModelConfig defaults;
  int64_t feed_forward_factor =
      0;  ///< without intermediate_size there, it is this times hidden_size; 0: that of defaults
  std::optional<int64_t> default_bos, default_eos, default_pad;
  double default_aux_loss_coef = 0.01;
};

/// Returns all families.
const std::vector<Family>& families();

/// Returns the family of this name, or null if there is none.
const Family* find_family(const std::string& name);

/// Returns the family of a model. @throws ConfigError if no family has the name model.family.
const Family& family_of(const ModelConfig& model);

/// Returns "one of olmo, olmoe, ...", for messages; of all families, or of those that have a class in `transformers`.
std::string expected_families(bool with_class = false);

/// Returns the features of routers that only some sparse models have and this one has: "model.num_shared_experts (1)",
/// ...
std::vector<std::string> router_features(const ModelConfig& model);

/// Returns the features of the model that its family's class in `transformers` lacks: those of routers, and others.
/// A model with such features trains, but cannot be exported.
std::vector<std::string> beyond_family(const ModelConfig& model);

/// Returns the initial standard deviation of the matrices whose outputs are added to the residual stream, in units of
/// model.initializer_range: 1, or less in a family with small_residuals.
double residual_deviation(const ModelConfig& model);

/// Returns the factor of the embedding's rows: 1, or √hidden_size.
double embedding_scale(const ModelConfig& model);

/// Returns the epsilon of every norm of the model: the family's fixed_norm_eps, or else rms_norm_eps.
double norm_eps(const ModelConfig& model);

}  // namespace athanor::inline config
