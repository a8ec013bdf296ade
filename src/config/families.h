#pragma once
// What distinguishes the families, as data. A family of known parts is a row in families.cpp; docs/families.md shows
// how to add one.

#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"

namespace athanor {

enum class NormKind {
  kRms,                     // with a scale
  kLayerWithoutParameters,  // OLMo
};

/// RMSNorm of queries and keys before they are turned.
enum class QkNorm {
  kNone,
  kWhole,  // over a token's whole projection (OLMoE)
  kHead,   // over each head, with one scale for all (Qwen3)
};

struct Family {
  std::string name;          ///< model.family, and model_type in `transformers`
  std::string architecture;  ///< the class there
  NormKind norm = NormKind::kRms;
  double fixed_norm_eps = 0;  ///< 0: rms_norm_eps
  QkNorm qk_norm = QkNorm::kNone;
  bool sparse = false;              ///< has experts
  bool mixed_layers = false;        ///< experts have a width of their own, and layers may be dense among sparse ones
  bool free_head_dim = false;       ///< head_dim may be other than hidden_size / num_attention_heads
  bool heads_divide_hidden = true;  ///< `transformers` asks for it even where head_dim is given
  bool clips_qkv = false;
  bool sliding_window_switch = false;  ///< sliding_window counts only where use_sliding_window is true

  /// What `transformers` assumes where config.json is silent.
  ModelConfig defaults;
  std::optional<int64_t> default_bos, default_eos, default_pad;
  double default_aux_loss_coef = 0.01;
};

/// All of them.
const std::vector<Family>& families();

/// Null if there is none of this name.
const Family* find_family(const std::string& name);

/// @throws ConfigError if model.family is none.
const Family& family_of(const ModelConfig& model);

/// "one of olmo, olmoe, ..."
std::string expected_families();

/// What the model has that its family's class in `transformers` has not: "model.num_shared_experts (1)", ... Such a
/// model trains, but cannot be exported.
std::vector<std::string> beyond_family(const ModelConfig& model);

/// Of every norm of the model.
double norm_eps(const ModelConfig& model);

}  // namespace athanor
