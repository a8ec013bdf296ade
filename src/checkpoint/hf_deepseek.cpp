#include "checkpoint/hf_deepseek.h"

#include <algorithm>

#include "checkpoint/hf_members.h"
#include "checkpoint/json_members.h"

namespace athanor::inline checkpoint {
namespace {

using Json = nlohmann::json;

void read_router_of_v2(const Json& json, ModelConfig& m, std::vector<std::string>& problems) {
  JsonMembers members(json, problems);
  if (!members.find("num_experts_per_tok")) problems.push_back("num_experts_per_tok is missing");
  members.only("norm_topk_prob", false);
  members.only("scoring_func", "softmax");
  const auto method = json.find("topk_method");
  if (method == json.end() || *method == "greedy") return;
  if (*method != "group_limited_greedy") {
    problems.push_back(fmt::format("topk_method = {} is not supported, only \"greedy\" and \"group_limited_greedy\"",
                                   JsonMembers::shown(*method)));
    return;
  }
  m.n_group = members.size("n_group", 0), m.topk_group = members.size("topk_group", 0);
}

// Its class knows one way alone, in groups of at least two experts.
void read_router_of_v3(const Json& json, ModelConfig& m, std::vector<std::string>& problems) {
  JsonMembers members(json, problems);
  members.only("scoring_func", "sigmoid");
  members.only("topk_method", "noaux_tc");
  members.only("rope_interleave", true);
  const auto* head_dim = members.find("head_dim");  // the class turns as many dims
  if (head_dim && *head_dim != m.qk_rope_head_dim)
    problems.push_back(fmt::format("head_dim = {} is not supported, only qk_rope_head_dim ({})",
                                   JsonMembers::shown(*head_dim), m.qk_rope_head_dim));
  m.norm_topk_prob = members.boolean("norm_topk_prob", m.norm_topk_prob);
  m.n_group = members.size("n_group", m.n_group), m.topk_group = members.size("topk_group", m.topk_group);
  if (m.num_experts / m.n_group < 2)
    problems.push_back(fmt::format("n_group = {} is not supported: a group of {} experts has less than two", m.n_group,
                                   m.num_experts / m.n_group));
  if (m.n_group == 1) m.n_group = m.topk_group = 0;
}

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
void read_deepseek_experts(const Family& family, const Json& json, ModelConfig& m, std::vector<std::string>& problems) {
  JsonMembers members(json, problems);
  const bool is_v3 = family.router_score == RouterScore::kSigmoid;
  const int64_t dense = std::min(members.size("first_k_dense_replace", is_v3 ? 3 : 0, 0), m.num_hidden_layers);
  for (int64_t l = 0; l < std::min(dense, kMostLayers); ++l) m.mlp_only_layers.push_back(l);
  m.num_shared_experts = members.size("n_shared_experts", m.num_shared_experts);
  m.routed_scaling_factor = members.number("routed_scaling_factor", m.routed_scaling_factor);
  members.only("moe_layer_freq", 1);
  return is_v3 ? read_router_of_v3(json, m, problems) : read_router_of_v2(json, m, problems);
}

void write_latents(const ModelConfig& m, Json& json) {
  json["q_lora_rank"] = m.q_lora_rank > 0 ? Json(m.q_lora_rank) : Json();
  json["kv_lora_rank"] = m.kv_lora_rank;
  json["qk_nope_head_dim"] = m.qk_nope_head_dim;
  json["qk_rope_head_dim"] = m.qk_rope_head_dim;
  json["v_head_dim"] = m.v_head_dim;
  json["num_key_value_heads"] = m.num_attention_heads;
}

void write_deepseek_experts(const Family& family, const ModelConfig& m, Json& json) {
  json["first_k_dense_replace"] = m.num_hidden_layers - m.num_sparse_layers();
  json["n_shared_experts"] = m.shared_intermediate_size() / m.expert_intermediate_size();
  json["routed_scaling_factor"] = m.routed_scaling_factor;
  if (family.router_score == RouterScore::kSigmoid) {
    json["scoring_func"] = "sigmoid", json["topk_method"] = "noaux_tc";
    json["norm_topk_prob"] = m.norm_topk_prob;
    json["n_group"] = std::max<int64_t>(m.n_group, 1), json["topk_group"] = std::max<int64_t>(m.topk_group, 1);
    json["num_nextn_predict_layers"] = 0;
    return;
  }
  json["topk_method"] = m.n_group > 0 ? "group_limited_greedy" : "greedy";
  json["n_group"] = m.n_group > 0 ? Json(m.n_group) : Json();
  json["topk_group"] = m.n_group > 0 ? Json(m.topk_group) : Json();
}

}  // namespace athanor::inline checkpoint
