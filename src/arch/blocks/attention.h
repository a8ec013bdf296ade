#pragma once
// Causal self-attention of one layer: its parameters, and what is computed with them.

#include <optional>

#include "arch/blocks/linear.h"
#include "arch/blocks/norm.h"
#include "config/families.h"
#include "config/findings.h"

namespace athanor::inline arch {

/// A vector of few dims, of which queries, or keys and values, are made (DeepSeek-V2, §2.1): norm(down(x)).
struct LatentSpec {
  LinearSpec down;
  NormSpec norm;
};

struct AttentionSpec {
  std::string name;  ///< "model.layers.3.self_attn"
  int64_t layer = 0;
  int64_t heads = 0, kv_heads = 0;
  int64_t head_dim = 0, value_dim = 0;  ///< dims of a head's queries and keys, and of its values
  LinearSpec query, key, value, out;
  std::optional<LatentSpec> query_latent, key_value_latent;  ///< what query, and key and value, read in place of x
  /// The turned dims of the keys, which all heads share and which are made of x; `key` makes the others.
  std::optional<LinearSpec> shared_key;
  QkNorm qk_norm = QkNorm::kNone;    ///< an RMSNorm of queries and keys …
  std::string query_norm, key_norm;  ///< … and the names of its scales
  double norm_eps = 0, norm_offset = 0;
  double clip = 0;              ///< queries, keys and values are clamped to ±this; 0: they are not
  bool rotates = true;          ///< queries and keys are rotated by their positions …
  bool scales_rotation = true;  ///< … by the model's own angles, not those of its layers with a window
  int64_t window = 0;           ///< keys that a query sees, its own included; 0: all before it
  double scale = 0;             ///< factor of products of queries and keys; 0: 1 / √head_dim
  std::string sinks;            ///< name of the logits, one of each head, that have no key; "": there are none
  double soft_cap = 0;          ///< logits become cap · tanh(logit / cap) with this cap; 0: none

  void append_parameters(std::vector<ParameterSpec>& all) const;
  /// Return the forward FLOPs of the linear layers for `tokens` tokens, and of QKᵀ, and of QKᵀ and PV, in sequences of
  /// `seq_len` tokens.
  double projection_flops(double tokens) const;
  double logit_flops(double tokens, double seq_len) const;
  double score_flops(double tokens, double seq_len) const;
  /// Adds why its heads cannot be divided among as many tensor ranks.
  void check_tensor_ranks(int64_t degree, Findings& found) const;
};

/// Returns the attention of a layer. @param prefix  "model.layers.3."
AttentionSpec make_attention(const ModelConfig& model, int64_t layer, const std::string& prefix);

}  // namespace athanor::inline arch
