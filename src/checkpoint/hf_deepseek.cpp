#include "checkpoint/hf_deepseek.h"

#include <algorithm>

#include "checkpoint/hf_members.h"
#include "checkpoint/json_members.h"

namespace athanor::inline checkpoint {
namespace {

using Json = nlohmann::json;

}  // namespace

// `transformers` tells a q_lora_rank that is null, which is none, from one that is absent.
void read_latents(const Json& json, ModelConfig& m, std::vector<std::string>& problems) {
  JsonMembers members(json, problems);
  const auto given = json.find("q_lora_rank");
  m.q_lora_rank = given != json.end() && given->is_null() ? 0 : members.size("q_lora_rank", m.q_lora_rank);
  for (const auto& [key, size] : {std::pair{"kv_lora_rank", &m.kv_lora_rank},
                                  {"qk_nope_head_dim", &m.qk_nope_head_dim},
                                  {"qk_rope_head_dim", &m.qk_rope_head_dim},
                                  {"v_head_dim", &m.v_head_dim}})
    *size = members.size(key, *size);
  const auto* heads = members.find("num_key_value_heads");
  if (heads && *heads != m.num_attention_heads)
    problems.push_back(fmt::format("num_key_value_heads = {} is not supported, only num_attention_heads ({})",
                                   JsonMembers::shown(*heads), m.num_attention_heads));
}

// The first layers of DeepSeek's models are dense; experts of the others may lie in groups.
void read_deepseek_experts(const Json& json, ModelConfig& m, std::vector<std::string>& problems) {
  JsonMembers members(json, problems);
  const int64_t dense = std::min(members.size("first_k_dense_replace", 0, 0), m.num_hidden_layers);
  for (int64_t l = 0; l < std::min(dense, kMostLayers); ++l) m.mlp_only_layers.push_back(l);
  if (!members.find("num_experts_per_tok")) problems.push_back("num_experts_per_tok is missing");
  m.num_shared_experts = members.size("n_shared_experts", m.num_shared_experts);
  m.routed_scaling_factor = members.number("routed_scaling_factor", m.routed_scaling_factor);
  members.only("norm_topk_prob", false);
  members.only("scoring_func", "softmax");
  members.only("moe_layer_freq", 1);
  const auto method = json.find("topk_method");
  if (method == json.end() || *method == "greedy") return;
  if (*method != "group_limited_greedy") {
    problems.push_back(fmt::format("topk_method = {} is not supported, only \"greedy\" and \"group_limited_greedy\"",
                                   JsonMembers::shown(*method)));
    return;
  }
  m.n_group = members.size("n_group", 0), m.topk_group = members.size("topk_group", 0);
}

void write_latents(const ModelConfig& m, Json& json) {
  json["q_lora_rank"] = m.q_lora_rank > 0 ? Json(m.q_lora_rank) : Json();
  json["kv_lora_rank"] = m.kv_lora_rank;
  json["qk_nope_head_dim"] = m.qk_nope_head_dim;
  json["qk_rope_head_dim"] = m.qk_rope_head_dim;
  json["v_head_dim"] = m.v_head_dim;
  json["num_key_value_heads"] = m.num_attention_heads;
}

void write_deepseek_experts(const ModelConfig& m, Json& json) {
  json["first_k_dense_replace"] = m.num_hidden_layers - m.num_sparse_layers();
  json["n_shared_experts"] = m.shared_intermediate_size() / m.expert_intermediate_size();
  json["routed_scaling_factor"] = m.routed_scaling_factor;
  json["topk_method"] = m.n_group > 0 ? "group_limited_greedy" : "greedy";
  json["n_group"] = m.n_group > 0 ? Json(m.n_group) : Json();
  json["topk_group"] = m.n_group > 0 ? Json(m.topk_group) : Json();
}

}  // namespace athanor::inline checkpoint
