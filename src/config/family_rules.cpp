// What follows from a model's family: the rows are in families.cpp.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/families.h"

namespace athanor::inline config {

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const auto& family : families()) names.push_back(family.name);
  return names;
}

const Family* find_family(const std::string& name) {
  const auto& all = families();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Family& f) { return f.name == name; });
  return found == all.end() ? nullptr : &*found;
}

std::string expected_families(bool with_class) {
  std::vector<std::string> names;
  for (const Family& family : families())
    if (!with_class || !family.architecture.empty()) names.push_back(family.name);
  return "one of " + join(names);
}

const Family& family_of(const ModelConfig& model) {
  const Family* family = find_family(model.family);
  ATHANOR_CHECK(family, "model.family: expected {}, got {}", expected_families(), model.family);
  return *family;
}

std::vector<std::string> router_features(const ModelConfig& m) {
  std::vector<std::string> keys;
  if ((m.num_shared_experts > 0) != family_of(m).has_shared_experts)
    keys.push_back(fmt::format("model.num_shared_experts ({})", m.num_shared_experts));
  if (m.score() != family_of(m).router_score) keys.push_back(fmt::format("model.router_score ({})", m.router_score));
  if (m.routed_scaling_factor != 1 && !family_of(m).deepseek_experts)
    keys.push_back(fmt::format("model.routed_scaling_factor ({})", m.routed_scaling_factor));
  return keys;
}

std::vector<std::string> beyond_family(const ModelConfig& m) {
  std::vector<std::string> keys = router_features(m);
  if (family_of(m).deepseek_experts) {
    const int64_t dense = m.num_hidden_layers - m.num_sparse_layers();
    int64_t first = 0;
    while (first < m.num_hidden_layers && !m.is_sparse_layer(first)) ++first;
    if (first < dense) keys.push_back(fmt::format("a dense layer after layer {}, which has experts", first));
    const bool sums_two = family_of(m).router_score == RouterScore::kSigmoid;  // a group's score is that of two experts
    if (m.norm_topk_prob && !sums_two) keys.push_back("model.norm_topk_prob (true)");
    if (sums_two && m.num_experts / std::max<int64_t>(m.n_group, 1) < 2)
      keys.push_back(fmt::format("model.n_group ({}), groups of one expert", m.n_group));
    if (m.shared_intermediate_size() % m.expert_intermediate_size() != 0)
      keys.push_back(fmt::format("model.shared_expert_intermediate_size ({})", m.shared_expert_intermediate_size));
  }
  if (!family_of(m).grouped_keys && m.kv_heads() != m.num_attention_heads)
    keys.push_back(fmt::format("model.num_key_value_heads ({})", m.num_key_value_heads));
  return keys;
}

double residual_deviation(const ModelConfig& model) {
  if (!family_of(model).small_residuals) return 1;
  return 1 / std::sqrt(2 * static_cast<double>(model.num_hidden_layers));
}

double embedding_scale(const ModelConfig& model) {
  return family_of(model).scales_embedding ? std::sqrt(static_cast<double>(model.hidden_size)) : 1;
}

bool ModelConfig::rotates_windows_apart() const {
  return family_of(*this).windows_unscaled && (rope_scaling != RopeScaling{} || theta_in_windows() != rope_theta);
}

double norm_eps(const ModelConfig& model) {
  const double fixed = family_of(model).fixed_norm_eps;
  return fixed > 0 ? fixed : model.rms_norm_eps;
}

int64_t ModelConfig::window_of(int64_t layer) const {
  if (sliding_window == 0) return 0;
  const auto& full = full_attention_layers;
  const int64_t every = family_of(*this).full_attention_every;
  const bool is_full =
      full.empty() ? every > 0 && (layer + 1) % every == 0 : std::find(full.begin(), full.end(), layer) != full.end();
  return is_full ? 0 : sliding_window;
}

bool ModelConfig::norms_topk() const { return norm_topk_prob || family_of(*this).norms_topk; }

bool ModelConfig::is_sparse_layer(int64_t layer) const {
  if (!is_moe() || (layer + 1) % decoder_sparse_step != 0) return false;
  return std::find(mlp_only_layers.begin(), mlp_only_layers.end(), layer) == mlp_only_layers.end();
}

int64_t ModelConfig::num_sparse_layers() const {
  if (!is_moe()) return 0;
  // The count does not walk the layers: a damaged file may claim any number of them.
  int64_t count = num_hidden_layers / decoder_sparse_step;
  for (const int64_t layer : std::set<int64_t>(mlp_only_layers.begin(), mlp_only_layers.end())) {
    if (layer >= 0 && layer < num_hidden_layers && (layer + 1) % decoder_sparse_step == 0) --count;
  }
  return count;
}

}  // namespace athanor::inline config
