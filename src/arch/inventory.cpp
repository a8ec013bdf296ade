#include "arch/inventory.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "config/families.h"

namespace athanor::inline arch {
namespace {

void add_attention(const ModelConfig& m, int64_t layer, const std::string& prefix, std::vector<ParameterSpec>& out) {
  const int64_t d = m.hidden_size, q = m.num_attention_heads * m.head_dim(), kv = m.kv_heads() * m.head_dim();
  const std::string attention = prefix + "self_attn.";
  out.push_back({attention + "q_proj.weight", {q, d}, Role::kQuery, layer, {.tensor = 0}});
  out.push_back({attention + "k_proj.weight", {kv, d}, Role::kKey, layer, {.tensor = 0}});
  out.push_back({attention + "v_proj.weight", {kv, d}, Role::kValue, layer, {.tensor = 0}});
  out.push_back({attention + "o_proj.weight", {d, q}, Role::kAttentionOut, layer, {.tensor = 1}});
  const QkNorm qk_norm = family_of(m).qk_norm;
  if (qk_norm == QkNorm::kWhole) {
    out.push_back({attention + "q_norm.weight", {q}, Role::kQkNorm, layer, {.tensor = 0}});
    out.push_back({attention + "k_norm.weight", {kv}, Role::kQkNorm, layer, {.tensor = 0}});
  } else if (qk_norm == QkNorm::kHead) {
    out.push_back({attention + "q_norm.weight", {m.head_dim()}, Role::kQkNorm, layer, {}});
    out.push_back({attention + "k_norm.weight", {m.head_dim()}, Role::kQkNorm, layer, {}});
  }
}

// Adds one SwiGLU of width f.
void add_dense(int64_t d, int64_t f, int64_t layer, const std::string& prefix, std::vector<ParameterSpec>& out) {
  out.push_back({prefix + "gate_proj.weight", {f, d}, Role::kGate, layer, {.tensor = 0}});
  out.push_back({prefix + "up_proj.weight", {f, d}, Role::kUp, layer, {.tensor = 0}});
  out.push_back({prefix + "down_proj.weight", {d, f}, Role::kDown, layer, {.tensor = 1}});
}

void add_feed_forward(const ModelConfig& m, int64_t layer, const std::string& prefix, std::vector<ParameterSpec>& out) {
  const int64_t d = m.hidden_size, e = m.num_experts, f = m.expert_intermediate_size();
  const std::string mlp = prefix + "mlp.";
  if (!m.is_sparse_layer(layer)) {
    add_dense(d, m.intermediate_size, layer, mlp, out);
    return;
  }
  out.push_back({mlp + "gate.weight", {e, d}, Role::kRouter, layer, {}});
  out.push_back({mlp + "experts.gate_proj.weight", {e, f, d}, Role::kExpertGate, layer, {.tensor = 1, .expert = 0}});
  out.push_back({mlp + "experts.up_proj.weight", {e, f, d}, Role::kExpertUp, layer, {.tensor = 1, .expert = 0}});
  out.push_back({mlp + "experts.down_proj.weight", {e, d, f}, Role::kExpertDown, layer, {.tensor = 2, .expert = 0}});
  // Every token passes through the shared experts: together they are one dense layer.
  if (m.num_shared_experts > 0) add_dense(d, m.shared_intermediate_size(), layer, mlp + "shared_experts.", out);
}

}  // namespace

int64_t ParameterSpec::num_elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

std::vector<ParameterSpec> make_inventory(const ModelConfig& m) {
  std::vector<ParameterSpec> out;
  const int64_t d = m.hidden_size;
  const bool norms_have_weights = family_of(m).norm == NormKind::kRms;
  out.push_back({"model.embed_tokens.weight", {m.vocab_size, d}, Role::kEmbedding, -1, {.tensor = 0}});
  for (int64_t layer = 0; layer < m.num_hidden_layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    if (norms_have_weights) out.push_back({prefix + "input_layernorm.weight", {d}, Role::kNorm, layer, {}});
    add_attention(m, layer, prefix, out);
    if (norms_have_weights) out.push_back({prefix + "post_attention_layernorm.weight", {d}, Role::kNorm, layer, {}});
    add_feed_forward(m, layer, prefix, out);
  }
  if (norms_have_weights) out.push_back({"model.norm.weight", {d}, Role::kNorm, -1, {}});
  if (!m.tie_word_embeddings) out.push_back({"lm_head.weight", {m.vocab_size, d}, Role::kOutput, -1, {.tensor = 0}});
  return out;
}

int64_t count_parameters(const ModelConfig& model) {
  int64_t total = 0;
  for (const auto& spec : make_inventory(model)) total += spec.num_elements();
  return total;
}

int64_t count_active_parameters(const ModelConfig& model) {
  int64_t active = 0;
  for (const auto& spec : make_inventory(model)) {
    active +=
        spec.is_expert() ? spec.num_elements() / model.num_experts * model.num_experts_per_tok : spec.num_elements();
  }
  return active;
}

namespace {

constexpr std::array<std::pair<const char*, Role>, 15> kNames{{{"embedding", Role::kEmbedding},
                                                               {"norm", Role::kNorm},
                                                               {"qk_norm", Role::kQkNorm},
                                                               {"query", Role::kQuery},
                                                               {"key", Role::kKey},
                                                               {"value", Role::kValue},
                                                               {"attention_out", Role::kAttentionOut},
                                                               {"router", Role::kRouter},
                                                               {"gate", Role::kGate},
                                                               {"up", Role::kUp},
                                                               {"down", Role::kDown},
                                                               {"expert_gate", Role::kExpertGate},
                                                               {"expert_up", Role::kExpertUp},
                                                               {"expert_down", Role::kExpertDown},
                                                               {"output", Role::kOutput}}};

}  // namespace

std::vector<std::string> role_names() {
  std::vector<std::string> names;
  for (const auto& [name, role] : kNames) names.emplace_back(name);
  return names;
}

std::optional<Role> find_role(const std::string& name) {
  const auto* found = std::ranges::find_if(kNames, [&](const auto& each) { return name == each.first; });
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

bool takes_parameter(const std::string& word, const ParameterSpec& spec) {
  const auto role = find_role(word);
  return role ? spec.role == *role : matches_wildcard(word, spec.name);
}

}  // namespace athanor::inline arch
