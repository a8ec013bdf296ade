// Checks conditions between a model's fields, with the row of its family.

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "base/text.h"
#include "config/checks.h"
#include "config/families.h"
#include "config/fields.h"
#include "config/findings.h"

namespace athanor::inline config {
namespace {

// A visitor that applies the declared check of each field, for values that did not come through the TOML reader: those
// of a model from a folder, or of a configuration that a program made.
class FieldFaults : public Fields {
 public:
  // @param prefix  prefix of the field names in messages: "model."
  explicit FieldFaults(std::string prefix) : prefix_(std::move(prefix)) {}

  void field(const char* key, bool& v, const char*, const Check<bool>& c) override { look(key, v, c); }
  void field(const char* key, int64_t& v, const char*, const Check<int64_t>& c) override { look(key, v, c); }
  void field(const char* key, double& v, const char*, const Check<double>& c) override { look(key, v, c); }
  void field(const char* key, std::string& v, const char*, const Check<std::string>& c) override { look(key, v, c); }
  void field(const char* key, std::vector<double>& v, const char*, const Check<std::vector<double>>& c) override {
    look(key, v, c);
  }
  void field(const char* key, std::vector<int64_t>& v, const char*, const Check<std::vector<int64_t>>& c) override {
    look(key, v, c);
  }
  void field(const char* key, std::vector<std::string>& v, const char*,
             const Check<std::vector<std::string>>& c) override {
    look(key, v, c);
  }
  void field(const char* key, CountOrAuto& v, const char*, const Check<CountOrAuto>& c) override { look(key, v, c); }
  void field(const char* key, NameOrNames& v, const char*, const Check<NameOrNames>& c) override { look(key, v, c); }

  // Returns a line for each visited field with a value that its declaration refuses: "model.hidden_size: expected an
  // integer from 1 to 16777216, got 0".
  std::vector<std::string> take() { return std::move(lines_); }

 protected:
  bool enter(const char* key, const char*) override {
    tables_.push_back(prefix_);
    prefix_ += std::string(key) + ".";
    return true;
  }
  void leave() override {
    prefix_ = tables_.back();
    tables_.pop_back();
  }
  size_t enter_list(const char* key, const char*, size_t size) override {
    list_ = key;
    return size;
  }
  void enter_item() override { enter(list_.c_str(), ""); }
  void leave_list() override {}

 private:
  template <class T>
  void look(const char* key, const T& value, const Check<T>& check) {
    if (!check.holds || check.holds(value)) return;
    std::string got;
    if constexpr (std::is_arithmetic_v<T>) got = fmt::format(", got {}", value);
    lines_.push_back(fmt::format("{}{}: expected {}{}", prefix_, key, check.expected, got));
  }

  std::string prefix_, list_;
  std::vector<std::string> tables_, lines_;
};

// Returns the families whose row has the property, such as "olmoe, qwen3_moe".
std::string families_that(bool Family::*have) {
  std::vector<std::string> names;
  for (const auto& family : families()) {
    if (family.*have) names.push_back(family.name);
  }
  return join(names);
}

void check_latents(const ModelConfig& m, Findings& found) {
  found.require(m.kv_lora_rank > 0 && m.v_head_dim > 0,
                "model.kv_lora_rank ({}) and model.v_head_dim ({}) must be at least 1 in family {}", m.kv_lora_rank,
                m.v_head_dim, m.family);
  const auto is_even = [](int64_t dims) { return dims >= 2 && dims % 2 == 0; };
  found.require(is_even(m.qk_rope_head_dim) && is_even(m.qk_nope_head_dim),
                "model.qk_rope_head_dim ({}) and model.qk_nope_head_dim ({}) must be even and at least 2, since rotary "
                "positions turn pairs",
                m.qk_rope_head_dim, m.qk_nope_head_dim);
  found.require(m.attention_head_dim == 0,
                "model.head_dim ({}): in family {} it is qk_nope_head_dim + "
                "qk_rope_head_dim; leave it out",
                m.attention_head_dim, m.family);
  found.require(m.kv_heads() == m.num_attention_heads,
                "model.num_key_value_heads ({}): in family {} each query head has keys of its own; leave it out",
                m.num_key_value_heads, m.family);
}

void check_groups(const Family& family, const ModelConfig& m, Findings& found) {
  found.require(family.deepseek_experts || m.n_group + m.topk_group == 0,
                "model.n_group and model.topk_group are for {} alone; set them to 0",
                families_that(&Family::deepseek_experts));
  if (m.n_group == 0) {
    found.require(m.topk_group == 0, "model.topk_group ({}) has no effect without model.n_group", m.topk_group);
    return;
  }
  found.require(m.num_experts % m.n_group == 0, "model.n_group ({}) must divide model.num_experts ({})", m.n_group,
                m.num_experts);
  found.require(m.topk_group >= 1 && m.topk_group <= m.n_group,
                "model.topk_group ({}) must be between 1 and model.n_group ({})", m.topk_group, m.n_group);
  found.require(m.topk_group * (m.num_experts / m.n_group) >= m.num_experts_per_tok,
                "model.topk_group ({}) groups of {} experts have less than model.num_experts_per_tok ({})",
                m.topk_group, m.num_experts / m.n_group, m.num_experts_per_tok);
}

void check_heads(const Family& family, const ModelConfig& m, Findings& found) {
  if (!family.latent_attention) {
    const bool none = m.q_lora_rank + m.kv_lora_rank + m.qk_nope_head_dim + m.qk_rope_head_dim + m.v_head_dim == 0;
    found.require(
        none,
        "model.q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim are for {} alone; "
        "set them to 0",
        families_that(&Family::latent_attention));
    if (!none) return;
  }
  const bool divides = m.hidden_size % m.num_attention_heads == 0;
  if (family.heads_divide_hidden || m.attention_head_dim == 0) {
    found.require(divides, "model.num_attention_heads ({}) must divide model.hidden_size ({})", m.num_attention_heads,
                  m.hidden_size);
    if (!divides) return;
  }
  if (family.latent_attention) return check_latents(m, found);
  const int64_t head_dim = m.head_dim(), kv_heads = m.kv_heads();
  found.require(
      family.free_head_dim || head_dim == m.hidden_size / m.num_attention_heads,
      "model.head_dim ({}): in family {} it is model.hidden_size ({}) / model.num_attention_heads ({}); leave "
      "it out",
      head_dim, m.family, m.hidden_size, m.num_attention_heads);
  const bool fits = head_dim % 2 == 0 || family.positions != Positions::kRotary;
  if (m.attention_head_dim > 0) {
    found.require(fits, "model.head_dim ({}) must be even, since rotary positions turn pairs", head_dim);
  } else {
    found.require(
        fits,
        "model.hidden_size ({}) / model.num_attention_heads ({}) = {} must be even, since rotary positions turn "
        "pairs; use fewer or more heads",
        m.hidden_size, m.num_attention_heads, head_dim);
  }
  found.require(family.partial_rotation || m.partial_rotary_factor == 1,
                "model.partial_rotary_factor ({}) is for {} alone; set it to 1", m.partial_rotary_factor,
                families_that(&Family::partial_rotation));
  const int64_t rotated = m.rotated_dims();
  found.require(rotated == head_dim || (rotated >= 2 && rotated % 2 == 0),
                "model.partial_rotary_factor ({}) of the {} dims of a head are {}: expected an even number, at least 2",
                m.partial_rotary_factor, head_dim, rotated);
  found.require(m.num_attention_heads % kv_heads == 0,
                "model.num_key_value_heads ({}) must divide model.num_attention_heads ({})", kv_heads,
                m.num_attention_heads);
}

void check_experts(const Family& family, const ModelConfig& m, Findings& found) {
  if (!family.sparse) {
    found.require(m.num_experts == 0, "model.num_experts ({}): family {} is dense; set it to 0, or model.family to {}",
                  m.num_experts, m.family, families_that(&Family::sparse));
    found.require(m.shared_expert_intermediate_size == 0,
                  "model.shared_expert_intermediate_size ({}): family {} is dense; set it to 0",
                  m.shared_expert_intermediate_size, m.family);
    const auto beyond = router_features(m);
    found.require(beyond.empty(), "{}: family {} is dense and has no router", join(beyond), m.family);
    return;
  }
  found.require(m.num_shared_experts > 0 || m.shared_expert_intermediate_size == 0,
                "model.shared_expert_intermediate_size ({}) has no effect without model.num_shared_experts",
                m.shared_expert_intermediate_size);
  found.require(m.num_shared_experts > 0 || !family.has_shared_experts,
                "model.num_shared_experts: every sparse layer of {} has a shared expert; set it to at least 1",
                m.family);
  found.require(m.num_experts >= 1, "model.num_experts: family {} needs at least 1; set it, or choose a dense family",
                m.family);
  found.require(m.num_experts_per_tok >= 1 && m.num_experts_per_tok <= std::max<int64_t>(m.num_experts, 1),
                "model.num_experts_per_tok ({}) must be between 1 and model.num_experts ({})", m.num_experts_per_tok,
                m.num_experts);
}

void check_layers(const Family& family, const ModelConfig& m, Findings& found) {
  if (!family.mixed_layers) {
    const auto only = families_that(&Family::mixed_layers);
    found.require(m.moe_intermediate_size == 0,
                  "model.moe_intermediate_size ({}) is for {} alone; family {} has model.intermediate_size",
                  m.moe_intermediate_size, only, m.family);
    found.require(m.decoder_sparse_step == 1, "model.decoder_sparse_step ({}) is for {} alone", m.decoder_sparse_step,
                  only);
    found.require(m.mlp_only_layers.empty(), "model.mlp_only_layers is for {} alone", only);
    return;
  }
  const auto& dense = m.mlp_only_layers;
  const auto beyond = std::find_if(dense.begin(), dense.end(),
                                   [&](int64_t layer) { return layer < 0 || layer >= m.num_hidden_layers; });
  if (beyond != dense.end()) {
    found.require(false, "model.mlp_only_layers has {}: expected layers from 0 to {}", *beyond,
                  m.num_hidden_layers - 1);
  }
  found.require(static_cast<int64_t>(dense.size()) <= m.num_hidden_layers,
                "model.mlp_only_layers has {} entries for {} layers", dense.size(), m.num_hidden_layers);
  found.require(m.num_experts == 0 || m.num_sparse_layers() > 0,
                "model.decoder_sparse_step ({}) and model.mlp_only_layers leave none of the {} layers with experts",
                m.decoder_sparse_step, m.num_hidden_layers);
}

void check_windows(const Family& family, const ModelConfig& m, Findings& found) {
  found.require(family.has_window || m.sliding_window == 0, "model.sliding_window ({}) is for {} alone; set it to 0",
                m.sliding_window, families_that(&Family::has_window));
  found.require(family.windows_own_theta || m.window_rope_theta == 0,
                "model.window_rope_theta ({}) is for {} alone; set it to 0", m.window_rope_theta,
                families_that(&Family::windows_own_theta));
  const auto& full = m.full_attention_layers;
  if (full.empty()) return;
  found.require(family.mixes_windows, "model.full_attention_layers is for {} alone; in family {} all layers are alike",
                families_that(&Family::mixes_windows), m.family);
  found.require(m.sliding_window > 0, "model.full_attention_layers has no effect without model.sliding_window");
  const auto beyond = std::ranges::find_if(full, [&](int64_t l) { return l < 0 || l >= m.num_hidden_layers; });
  if (beyond != full.end())
    found.require(false, "model.full_attention_layers has {}: expected layers from 0 to {}", *beyond,
                  m.num_hidden_layers - 1);
  found.require(static_cast<int64_t>(full.size()) <= m.num_hidden_layers,
                "model.full_attention_layers has {} entries for {} layers", full.size(), m.num_hidden_layers);
}

void check_logits(const Family& family, const ModelConfig& m, Findings& found) {
  const auto alone = [&](const char* key, auto value, bool Family::*have) {
    found.require(family.*have || value == 0, "model.{} ({}) is for {} alone; set it to 0", key, value,
                  families_that(have));
  };
  alone("query_pre_attn_scalar", m.query_pre_attn_scalar, &Family::scales_queries);
  found.require(family.scales_by_layer || !m.scale_attn_by_inverse_layer_idx,
                "model.scale_attn_by_inverse_layer_idx is for {} alone; set it to false",
                families_that(&Family::scales_by_layer));
  alone("attn_logit_softcapping", m.attn_logit_softcapping, &Family::caps_attention);
  alone("final_logit_softcapping", m.final_logit_softcapping, &Family::caps_output);
  alone("swiglu_alpha", m.swiglu_alpha, &Family::clamps_swiglu);
  alone("swiglu_limit", m.swiglu_limit, &Family::clamps_swiglu);
}

void check_rope_scaling(const Family& family, const ModelConfig& m, Findings& found) {
  const auto& r = m.rope_scaling;
  const RopeScaling unset;
  if (family.positions != Positions::kRotary) {
    found.require(m.rope_theta == ModelConfig{}.rope_theta && r == unset,
                  "model.rope_theta and model.rope_scaling have no effect: the positions of {} are learned; leave them "
                  "out",
                  m.family);
    return;
  }
  if (family.longrope_alone && r.type() != RopeType::kLongRope && r != unset) {
    found.require(false, "model.rope_scaling.rope_type ({}): {} has longrope alone; leave it out", r.rope_type,
                  m.family);
    return;
  }
  const auto for_type = [&](const char* key, bool set, std::initializer_list<RopeType> types) {
    const bool used = std::ranges::any_of(types, [&](RopeType type) { return r.type() == type; });
    found.require(!set || used, "model.rope_scaling.{} has no effect with rope_type {}; leave it out, or set rope_type",
                  key, r.rope_type);
  };
  for_type("factor", r.factor != unset.factor,
           {RopeType::kLinear, RopeType::kDynamic, RopeType::kYarn, RopeType::kLlama3, RopeType::kLongRope});
  for_type("original_max_position_embeddings",
           r.original_max_position_embeddings != unset.original_max_position_embeddings,
           {RopeType::kYarn, RopeType::kLlama3, RopeType::kLongRope});
  for_type("low_freq_factor", r.low_freq_factor != unset.low_freq_factor, {RopeType::kLlama3});
  for_type("high_freq_factor", r.high_freq_factor != unset.high_freq_factor, {RopeType::kLlama3});
  for_type("attention_factor", r.attention_factor != unset.attention_factor, {RopeType::kYarn, RopeType::kLongRope});
  for (const auto& [key, factors] : {std::pair{"short_factor", &r.short_factor}, {"long_factor", &r.long_factor}}) {
    for_type(key, !factors->empty(), {RopeType::kLongRope});
    const int64_t pairs = m.rotated_dims() / 2;
    found.require(r.type() != RopeType::kLongRope || std::cmp_equal(factors->size(), pairs),
                  "model.rope_scaling.{} has {} numbers; longrope needs {}, one for each turned pair of dims", key,
                  factors->size(), pairs);
  }
  for_type("beta_fast", r.beta_fast != unset.beta_fast, {RopeType::kYarn});
  for_type("beta_slow", r.beta_slow != unset.beta_slow, {RopeType::kYarn});
  for_type("mscale", r.mscale != unset.mscale, {RopeType::kYarn});
  for_type("mscale_all_dim", r.mscale_all_dim != unset.mscale_all_dim, {RopeType::kYarn});
  for_type("truncate", r.truncate != unset.truncate, {RopeType::kYarn});
  found.require(r.high_freq_factor > r.low_freq_factor,
                "model.rope_scaling.high_freq_factor ({}) must be above low_freq_factor ({})", r.high_freq_factor,
                r.low_freq_factor);
  found.require(r.beta_fast >= r.beta_slow, "model.rope_scaling.beta_fast ({}) must be at least beta_slow ({})",
                r.beta_fast, r.beta_slow);
  found.require(r.type() != RopeType::kYarn || m.rope_theta > 1,
                "model.rope_theta ({}) must be above 1 with rope_type yarn", m.rope_theta);
}

// Bounds the size from above, in double; the exact count (arch/inventory.h) is in 64 bits.
void check_size(const ModelConfig& m, Findings& found) {
  const auto hidden = static_cast<double>(m.hidden_size), heads = static_cast<double>(m.num_attention_heads),
             head_dim = m.has_latents()
                            ? static_cast<double>(m.qk_nope_head_dim) + static_cast<double>(m.qk_rope_head_dim) +
                                  static_cast<double>(m.v_head_dim) + static_cast<double>(m.kv_lora_rank) +
                                  static_cast<double>(m.q_lora_rank)
                        : m.attention_head_dim > 0 ? static_cast<double>(m.attention_head_dim)
                                                   : hidden / heads;
  const auto attention = 2 * hidden * head_dim * (heads + static_cast<double>(m.kv_heads()));
  const auto experts = static_cast<double>(m.num_experts + m.num_shared_experts);
  const auto feed_forward =
      3 * hidden *
      (static_cast<double>(m.intermediate_size) + static_cast<double>(m.shared_expert_intermediate_size) +
       experts * static_cast<double>(std::max(m.intermediate_size, m.moe_intermediate_size)));
  const double all = static_cast<double>(m.num_hidden_layers) * (attention + feed_forward + hidden * experts) +
                     2 * hidden * static_cast<double>(m.vocab_size);
  found.require(
      all <= kMaxParameters,
      "model: its sizes make about {:.2g} parameters, more than the {:.2g} that can be counted; is one of hidden_size "
      "({}), intermediate_size ({}), num_experts ({}), num_hidden_layers ({}) or vocab_size ({}) mistyped?",
      all, kMaxParameters, m.hidden_size, m.intermediate_size, m.num_experts, m.num_hidden_layers, m.vocab_size);
}

}  // namespace

std::vector<std::string> find_contradictions(const ModelConfig& model) {
  FieldFaults fields("model.");
  ModelConfig copy = model;  // describe() takes references that are not const, since readers write through them
  copy.describe(fields);
  if (auto lines = fields.take(); !lines.empty()) return lines;
  Findings found;
  const Family& family = family_of(model);
  check_size(model, found);
  check_heads(family, model, found);
  check_experts(family, model, found);
  check_groups(family, model, found);
  check_layers(family, model, found);
  check_rope_scaling(family, model, found);
  check_windows(family, model, found);
  check_logits(family, model, found);
  found.require(family.clips_qkv || model.clip_qkv == 0, "model.clip_qkv ({}) is for {} alone; set it to 0",
                model.clip_qkv, families_that(&Family::clips_qkv));
  return found.take();
}

}  // namespace athanor::inline config
