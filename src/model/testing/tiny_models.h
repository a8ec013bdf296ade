#pragma once
// For tests: a tiny model of each family.

#include <string>

#include "config/families.h"
#include "config/run_config.h"

namespace athanor::inline model {

inline ModelConfig tiny_model(const std::string& family) {
  const bool sparse = find_family(family)->sparse;
  ModelConfig m;
  m.family = family;
  m.hidden_size = 32;
  m.num_hidden_layers = 2;
  m.num_attention_heads = 4;
  m.intermediate_size = 24;
  m.num_experts = sparse ? 6 : 0;
  m.num_experts_per_tok = sparse ? 2 : 0;
  m.vocab_size = 50;
  m.initializer_range = 0.1;
  if (find_family(family)->free_head_dim) {
    m.attention_head_dim = 10;
    m.num_key_value_heads = 2;
  }
  if (find_family(family)->full_attention_every > 0) {
    m.num_hidden_layers = 4;
    if (find_family(family)->full_attention_every > 4) m.full_attention_layers = {1};
  }
  if (find_family(family)->has_window && !find_family(family)->sliding_window_switch) m.sliding_window = 5;
  if (find_family(family)->has_shared_experts) {
    m.num_shared_experts = 1;
    m.shared_expert_intermediate_size = 12;
  }
  if (find_family(family)->partial_rotation) m.partial_rotary_factor = 0.5;
  if (find_family(family)->scales_queries) m.query_pre_attn_scalar = 3;
  if (find_family(family)->caps_attention) m.attn_logit_softcapping = 2;
  if (find_family(family)->caps_output) m.final_logit_softcapping = 1.5;
  if (find_family(family)->windows_own_theta) m.window_rope_theta = 100;
  if (find_family(family)->mixed_layers) {
    m.moe_intermediate_size = 20;
    m.num_hidden_layers = 4;
    m.mlp_only_layers = {0, 2};
  }
  return m;
}

}  // namespace athanor::inline model
