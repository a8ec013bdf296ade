#pragma once
// The differences between model families, as data. A family that consists of known parts is a row in families.cpp;
// docs/families.md shows how to add one.

#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace athanor::inline config {

enum class NormKind {
  kRms,                     // RMSNorm with a scale
  kLayerWithoutParameters,  // LayerNorm with neither scale nor bias (OLMo)
};

/// RMSNorm of queries and keys before the rotary embedding.
enum class QkNorm {
  kNone,
  kWhole,  // over a token's whole projection (OLMoE)
  kHead,   // over each head, with one scale for all (Qwen3)
};

/// The names of parameters in `transformers`, without ".weight". Those from `input_norm` on are of a layer,
/// and stand after `layers` and its number; those of attention and the feed-forward after the block's name.
struct FamilyNames {
  std::string embedding = "model.embed_tokens", layers = "model.layers", final_norm = "model.norm", head = "lm_head";
  std::string input_norm = "input_layernorm", attention = "self_attn", post_attention_norm = "post_attention_layernorm",
              feed_forward = "mlp";
  std::string query = "q_proj", key = "k_proj", value = "v_proj", attention_out = "o_proj", query_norm = "q_norm",
              key_norm = "k_norm";
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj", router = "gate", experts = "experts",
              shared_experts = "shared_experts";
};

struct Family {
  std::string name;          ///< model.family, and model_type in `transformers`
  std::string architecture;  ///< its class in `transformers`
  FamilyNames names = {};
  NormKind norm = NormKind::kRms;
  double fixed_norm_eps = 0;  ///< epsilon of all norms; 0: that of the model (rms_norm_eps)
  QkNorm qk_norm = QkNorm::kNone;
  bool sparse = false;                 ///< has experts
  bool mixed_layers = false;           ///< experts have a separate width, and some layers may be dense
  bool free_head_dim = false;          ///< head_dim may be other than hidden_size / num_attention_heads
  bool heads_divide_hidden = true;     ///< `transformers` requires it even if head_dim is given
  bool clips_qkv = false;              ///< has model.clip_qkv
  bool sliding_window_switch = false;  ///< in config.json, sliding_window counts only if use_sliding_window is true

  /// Values that `transformers` assumes for fields that config.json lacks.
  ModelConfig defaults;
  std::optional<int64_t> default_bos, default_eos, default_pad;
  double default_aux_loss_coef = 0.01;
};

/// Returns all families.
const std::vector<Family>& families();

/// Returns the family of this name, or null if there is none.
const Family* find_family(const std::string& name);

/// Returns the family of a model. @throws ConfigError if no family has the name model.family.
const Family& family_of(const ModelConfig& model);

/// Returns "one of olmo, olmoe, ...", for messages.
std::string expected_families();

/// Returns the features of the model that its family's class in `transformers` lacks: "model.num_shared_experts (1)",
/// ... A model with such features trains, but cannot be exported.
std::vector<std::string> beyond_family(const ModelConfig& model);

/// Returns the epsilon of every norm of the model: the family's fixed_norm_eps, or else rms_norm_eps.
double norm_eps(const ModelConfig& model);

}  // namespace athanor::inline config
