#include "checkpoint/hf_config.h"

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "arch/inventory.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/hf_deepseek.h"
#include "checkpoint/hf_members.h"
#include "checkpoint/hf_rope.h"
#include "checkpoint/json_members.h"
#include "checkpoint/strict_json.h"
#include "config/checks.h"
#include "config/families.h"

namespace athanor::inline checkpoint {
namespace {

// Members that do not change the text, or that --max-new-tokens stands for.
const std::set<std::string> kTextStaysTheSame = {
    "_from_model_config",      "assistant_token_id",   "bos_token_id",
    "cache_implementation",    "eos_token_id",         "max_length",
    "max_new_tokens",          "output_attentions",    "output_hidden_states",
    "output_logits",           "output_scores",        "pad_token_id",
    "return_dict_in_generate", "transformers_version", "use_cache"};

}  // namespace

HfGeneration parse_hf_generation(std::string_view text, const std::string& where) {
  const auto json = parse_strict_json(text, where);
  ATHANOR_CHECK_CHECKPOINT(json.is_object(), "{}: must be an object", where);
  HfGeneration generation;
  generation.text = text;
  std::vector<std::string> problems;
  generation.eos_token_ids = JsonMembers(json, problems).token_ids("eos_token_id", {});
  ATHANOR_CHECK_CHECKPOINT(problems.empty(), "{}: {}", where, join(problems, "; "));
  for (const auto& [key, value] : json.items()) {
    if (value.is_null() || kTextStaysTheSame.contains(key)) continue;
    generation.settings.push_back(fmt::format("{} = {}", shown_text(key), JsonMembers::shown(value)));
  }
  return generation;
}

HfGeneration read_hf_generation(const std::filesystem::path& folder) {
  const auto file = folder / kHfGenerationName;
  if (!std::filesystem::is_regular_file(file)) return {};
  return parse_hf_generation(read_file(file), file.string());
}

namespace {

using Json = nlohmann::json;

// Far above any model, as kMostLayers: it bounds the names that a damaged file makes us write.
constexpr int64_t kMaxExpertsInAll = 10'000'000;

void refuse_what_we_do_not_compute(const Family& family, const Json& json, std::vector<std::string>& problems) {
  JsonMembers members(json, problems);
  refuse_activation(family, json, problems);
  members.only("scale_attn_weights", true);
  if (!family.scales_by_layer) members.only("scale_attn_by_inverse_layer_idx", false);
  if (!family.scales_by_layer) members.only("reorder_and_upcast_attn", false);
  const bool has_biases = family.biases != Biases::kNone;
  members.only("attention_bias", has_biases && family.bias_member == "attention_bias");
  members.only("mlp_bias", false);
  if (has_biases && family.bias_member != "attention_bias" && !family.bias_member.empty())
    members.only(family.bias_member.c_str(), true);
  if (family.parallel) members.only("use_parallel_residual", true);
  members.only("router_jitter_noise", 0.0);
  if (!family.partial_rotation) members.only("partial_rotary_factor", 1.0);
  if (!family.has_window) members.only("use_sliding_window", false);
  members.only("use_bidirectional_attention", false);
  members.only("is_causal", true);
  members.only("is_encoder_decoder", false);
  members.only("add_cross_attention", false);
  if (!family.has_window) members.absent("sliding_window");
  if (!family.clips_qkv) members.absent("clip_qkv");
}

// Reads layer_types, in which a layer is "full_attention" or "sliding_attention".
void read_layer_types(const Family& family, const Json& kinds, ModelConfig& m, std::vector<std::string>& problems) {
  const auto refuse = [&](const std::string& why) {
    problems.push_back(fmt::format("layer_types = {} is not supported: {}", JsonMembers::shown(kinds), why));
  };
  m.full_attention_layers.clear();
  const auto is_known = [](const Json& kind) { return kind == "full_attention" || kind == "sliding_attention"; };
  if (!kinds.is_array() || std::cmp_not_equal(kinds.size(), m.num_hidden_layers) ||
      !std::ranges::all_of(kinds, is_known))
    return refuse("expected \"full_attention\" or \"sliding_attention\" for each layer");
  for (size_t l = 0; l < kinds.size(); ++l)
    if (kinds[l] == "full_attention") m.full_attention_layers.push_back(static_cast<int64_t>(l));
  const bool all_full = m.full_attention_layers.size() == kinds.size(), none_full = m.full_attention_layers.empty();
  if (all_full && family.mixes_windows) m.sliding_window = 0;
  if (m.sliding_window == 0) {
    m.full_attention_layers.clear();
    return all_full ? void() : refuse("there is no sliding_window");
  }
  if (!family.mixes_windows && !none_full) return refuse("all layers of this family have the window");
  if (none_full && family.full_attention_every > 0 && m.num_hidden_layers >= family.full_attention_every)
    refuse("a layer of this family must have full attention");
}

// Older files have the number of layers from one without the window to the next.
void read_window_pattern(const Family& family, JsonMembers& members, ModelConfig& m,
                         std::vector<std::string>& problems) {
  const int64_t every = members.size(family.window_pattern.c_str(), family.full_attention_every);
  if (m.sliding_window > 0 && every > m.num_hidden_layers && m.num_hidden_layers >= family.full_attention_every)
    problems.push_back(fmt::format("{} = {} is not supported: a layer of this family must have full attention",
                                   family.window_pattern, every));
  if (m.sliding_window == 0 || every == family.full_attention_every) return;
  for (int64_t l = every - 1; l < m.num_hidden_layers; l += every) m.full_attention_layers.push_back(l);
}

// `transformers` tells a window that is null from one that is absent.
void read_windows(const Family& family, const Json& json, ModelConfig& m, std::vector<std::string>& problems) {
  JsonMembers members(json, problems);
  const size_t problems_before = problems.size();
  const auto given = json.find("sliding_window");
  if (family.sliding_window_switch && !members.boolean("use_sliding_window", false))
    m.sliding_window = 0;
  else if (family.has_window && given != json.end())
    m.sliding_window = given->is_null() ? 0 : members.size("sliding_window", 0);
  if (problems.size() > problems_before || m.num_hidden_layers > kMostLayers) return;  // refused as a whole
  if (const auto* kinds = members.find("layer_types")) return read_layer_types(family, *kinds, m, problems);
  if (!family.window_pattern.empty()) read_window_pattern(family, members, m, problems);
  if (m.sliding_window == 0 && family.full_attention_every > 0)
    return problems.push_back("sliding_window = null is not supported: this family has layers with a window");
  if (m.sliding_window == 0 || !family.mixes_windows || !family.sliding_window_switch) return;
  if (family.windows_alternate) {
    const int64_t last = std::min(members.size("max_window_layers", 28, 0), m.num_hidden_layers);
    for (int64_t l = 0; l < m.num_hidden_layers; ++l)
      if (l >= last || (l + 1) % 2 == 0) m.full_attention_layers.push_back(l);
    if (last == 0) m.sliding_window = 0, m.full_attention_layers.clear();
    return;
  }
  const int64_t full = std::min(members.size("max_window_layers", 28, 0), m.num_hidden_layers);
  if (full == m.num_hidden_layers) m.sliding_window = 0;
  for (int64_t l = 0; m.sliding_window > 0 && l < full; ++l) m.full_attention_layers.push_back(l);
}

// `transformers` tells a cap that is null, which is none, from one that is absent.
void read_logits(const Family& family, const Json& json, ModelConfig& m, std::vector<std::string>& problems) {
  JsonMembers members(json, problems);
  const auto read_cap = [&](const char* key, bool has_cap, double& cap) {
    if (!has_cap) return members.absent(key);
    if (json.contains(key)) cap = members.number(key, 0);
    if (json.contains(key) && json[key] == 0)
      problems.push_back(fmt::format("{} = 0 is not supported: a cap is above 0, and null is none", key));
  };
  read_cap("attn_logit_softcapping", family.caps_attention, m.attn_logit_softcapping);
  read_cap("final_logit_softcapping", family.caps_output, m.final_logit_softcapping);
  if (family.scales_by_layer)
    m.scale_attn_by_inverse_layer_idx = members.boolean("scale_attn_by_inverse_layer_idx", false);
  if (family.scales_queries) m.query_pre_attn_scalar = members.size("query_pre_attn_scalar", m.query_pre_attn_scalar);
  for (const auto& [key, number] : {std::pair{"swiglu_alpha", &m.swiglu_alpha}, {"swiglu_limit", &m.swiglu_limit}}) {
    if (!family.clamps_swiglu) continue;
    *number = members.number(key, *number);
    if (*number == 0) problems.push_back(fmt::format("{} = 0 is not supported: expected a number above 0", key));
  }
}

ModelConfig read_model(const Family& family, const Json& json, std::vector<std::string>& problems) {
  JsonMembers members(json, problems);
  ModelConfig m = family.defaults;
  m.family = family.name;
  const auto own = [&](const char* name) { return given_name(family, json, name); };
  m.vocab_size = members.size("vocab_size", m.vocab_size);
  m.hidden_size = members.size(own("hidden_size"), m.hidden_size);
  m.intermediate_size =
      members.size(own("intermediate_size"),
                   family.feed_forward_factor > 0 ? family.feed_forward_factor * m.hidden_size : m.intermediate_size);
  m.num_hidden_layers = members.size(own("num_hidden_layers"), m.num_hidden_layers);
  m.num_attention_heads = members.size(own("num_attention_heads"), m.num_attention_heads);
  if (json.contains("num_key_value_heads") && json["num_key_value_heads"].is_null()) m.num_key_value_heads = 0;
  if (family.grouped_keys) m.num_key_value_heads = members.size("num_key_value_heads", m.num_key_value_heads);
  if (m.num_key_value_heads == 0) m.num_key_value_heads = m.num_attention_heads;
  if (!family.latent_attention) m.attention_head_dim = members.size("head_dim", m.attention_head_dim);
  m.max_position_embeddings = members.size(own("max_position_embeddings"), m.max_position_embeddings);
  m.initializer_range = members.number("initializer_range", m.initializer_range);
  m.tie_word_embeddings = members.boolean("tie_word_embeddings", family.defaults.tie_word_embeddings);
  if (family.clips_qkv) m.clip_qkv = members.number("clip_qkv", 0.0);
  if (family.fixed_norm_eps == 0) m.rms_norm_eps = members.number(own("rms_norm_eps"), m.rms_norm_eps);
  read_windows(family, json, m, problems);
  read_logits(family, json, m, problems);
  if (family.latent_attention) read_latents(json, m, problems);
  if (family.positions == Positions::kRotary) read_hf_rope(family, json, m, problems);
  if (family.sparse) {
    // The class of Qwen2-MoE does not read the second name.
    const int64_t local = family.has_shared_experts || family.deepseek_experts
                              ? m.num_experts
                              : members.size("num_local_experts", m.num_experts);
    m.num_experts = members.size(own("num_experts"), local);
    m.num_experts_per_tok = members.size("num_experts_per_tok", m.num_experts_per_tok);
    if (!family.deepseek_experts) m.norm_topk_prob = family.norms_topk || members.boolean("norm_topk_prob", false);
  }
  if (family.mixed_layers) {
    m.moe_intermediate_size = members.size("moe_intermediate_size", m.moe_intermediate_size);
    if (family.deepseek_experts) return read_deepseek_experts(family, json, m, problems), m;
    if (family.has_shared_experts)
      m.shared_expert_intermediate_size =
          members.size("shared_expert_intermediate_size", m.shared_expert_intermediate_size);
    m.decoder_sparse_step = members.size("decoder_sparse_step", 1);
    m.mlp_only_layers = members.indices("mlp_only_layers");
  }
  return m;
}

// What the file has that a family does not compute or read.
std::vector<std::string> differences_from(const Family& family, const Json& json) {
  std::vector<std::string> found;
  read_model(family, json, found);
  refuse_what_we_do_not_compute(family, json, found);
  for (std::string& member : find_unknown_members(family, json)) found.push_back(std::move(member));
  const bool has_experts = json.contains("num_experts") || json.contains("num_local_experts");
  if (has_experts != family.sparse) found.push_back(has_experts ? "it has no experts" : "it has experts");
  return found;
}

// Returns "the nearest is gemma2, which has no …": the family whose name begins like `type`, or else the one that
// differs in the least.
std::string nearest_family(const std::string& type, const Json& json) {
  const Family* nearest = nullptr;
  std::vector<std::string> least;
  size_t longest = 0;
  for (const Family& family : families()) {
    if (family.architecture.empty()) continue;
    size_t same = 0;
    while (same < type.size() && same < family.name.size() && type[same] == family.name[same]) ++same;
    if (same < 3) same = 0;
    std::vector<std::string> found = differences_from(family, json);
    if (nearest && (same < longest || (same == longest && found.size() >= least.size()))) continue;
    nearest = &family, least = std::move(found), longest = same;
  }
  return least.empty()
             ? fmt::format("the nearest is {}, which reads the same members and may compute others", nearest->name)
             : fmt::format("the nearest is {}, which differs in: {}", nearest->name, join_first(least, 8, "; "));
}

const Family& read_family(const Json& json, const std::string& where, std::vector<std::string>& problems) {
  const auto type = json_string(json, "model_type", where);
  const Family* found = find_family(type);
  ATHANOR_CHECK_CHECKPOINT(found && !found->architecture.empty(),
                           "{}: model_type \"{}\" is not supported; expected {}; {}", where, type,
                           expected_families(/*with_class=*/true), nearest_family(type, json));
  const auto architectures = json.find("architectures");
  if (architectures != json.end() && !architectures->is_null() && *architectures != Json{found->architecture}) {
    problems.push_back(
        fmt::format("architectures = {} is not supported, only [\"{}\"]", architectures->dump(), found->architecture));
  }
  return *found;
}

/// Refuses sizes that no machine has, so that products of shapes can be counted everywhere.
void check_countable(const ModelConfig& model, std::vector<std::string>& problems) {
  if (model.num_hidden_layers > kMostLayers) {
    problems.push_back(
        fmt::format("num_hidden_layers is {}, expected at most {}", model.num_hidden_layers, kMostLayers));
    return;
  }
  if (model.num_experts > kMaxExpertsInAll / model.num_hidden_layers) {
    problems.push_back(fmt::format("num_experts is {} in each of {} layers, expected at most {} in all",
                                   model.num_experts, model.num_hidden_layers, kMaxExpertsInAll));
    return;
  }
  int64_t total = 0;
  for (const auto& spec : make_inventory(model)) {
    const auto count = num_elements(spec.shape);
    if (!count || *count > INT64_MAX / 16 - total) {
      problems.push_back("the model has more parameters than can be counted");
      return;
    }
    total += *count;
  }
}

}  // namespace

HfConfig parse_hf_config(std::string_view text, const std::string& where) {
  const auto json = parse_strict_json(text, where);
  std::vector<std::string> problems;
  const Family& family = read_family(json, where, problems);
  HfConfig config;
  config.model = read_model(family, json, problems);
  JsonMembers members(json, problems);
  config.bos_token_id = members.token_id("bos_token_id", family.default_bos);
  config.eos_token_ids =
      members.token_ids("eos_token_id", family.default_eos ? std::vector{*family.default_eos} : std::vector<int64_t>());
  config.pad_token_id = members.token_id("pad_token_id", family.default_pad);
  config.router_aux_loss_coef = members.number("router_aux_loss_coef", family.default_aux_loss_coef);
  if (family.scales_by_layer) config.upcasts_attention = members.boolean(kUpcastsAttention, false);
  refuse_what_we_do_not_compute(family, json, problems);
  refuse_two_values(family, json, problems);
  config.unknown_members = find_unknown_members(family, json);
  config.quantization = read_quantization(json, !family.names.stacked_down.empty(), problems);
  config.dropouts = read_dropouts(json, problems);
  if (problems.empty()) problems = find_contradictions(config.model);
  if (problems.empty()) check_countable(config.model, problems);
  ATHANOR_CHECK_CHECKPOINT(problems.empty(), "{}: {}", where, join(problems, "; "));
  return config;
}

HfConfig read_hf_config(const std::filesystem::path& path) { return parse_hf_config(read_file(path), path.string()); }

void warn_of_unknown_members(const HfConfig& config, const std::filesystem::path& folder) {
  std::vector<std::string> rates;
  for (const auto& [key, rate] : config.dropouts) rates.push_back(fmt::format("{} = {}", key, rate));
  if (!config.left_out.empty())
    log::warn("{}: {} is left out, as {} does", folder.string(), config.left_out, family_of(config.model).architecture);
  if (!rates.empty())
    log::warn("{}: config.json has {}: training is without dropout", folder.string(), join(rates, ", "));
  if (config.unknown_members.empty()) return;
  log::warn(
      "{}: config.json has members that are not read, and that may change what its authors' code computes: {}; compare "
      "a text with theirs",
      folder.string(), join_first(config.unknown_members, 8, ", "));
}

namespace {

// Returns n if of the model's layers every n-th is without the window, and no other one; else 0.
int64_t step_of_full_layers(const ModelConfig& m) {
  int64_t first = 0;
  while (first < m.num_hidden_layers && m.window_of(first) > 0) ++first;
  if (first == m.num_hidden_layers) return 0;
  for (int64_t l = 0; l < m.num_hidden_layers; ++l)
    if ((m.window_of(l) == 0) != ((l + 1) % (first + 1) == 0)) return 0;
  return first + 1;
}

void write_windows(const Family& family, const ModelConfig& m, Json& json) {
  if (!family.has_window) return;
  // The class of olmo3 makes the mask of a window even if no layer has one.
  const bool needs_one = family.full_attention_every > 0;
  json["sliding_window"] = m.sliding_window > 0 ? Json(m.sliding_window)
                           : needs_one          ? Json(family.defaults.sliding_window)
                                                : Json();
  if (family.sliding_window_switch) json["use_sliding_window"] = m.sliding_window > 0;
  if (!family.mixes_windows) return;
  json["layer_types"] = Json::array();
  for (int64_t l = 0; l < m.num_hidden_layers; ++l)
    json["layer_types"].push_back(m.window_of(l) > 0 ? "sliding_attention" : "full_attention");
  // Version 4 reads the step from one layer without the window to the next.
  const int64_t every = family.window_pattern.empty() ? 0 : step_of_full_layers(m);
  if (every > 0) json[family.window_pattern] = every;
  if (m.sliding_window > 0 && family.sliding_window_switch && !family.windows_alternate)
    json["max_window_layers"] =
        std::ranges::find(json["layer_types"], "sliding_attention") - json["layer_types"].begin();
}

void write_logits(const Family& family, const ModelConfig& m, Json& json) {
  const auto cap = [](double value) { return value > 0 ? Json(value) : Json(); };
  if (family.caps_attention) json["attn_logit_softcapping"] = cap(m.attn_logit_softcapping);
  if (family.caps_output) json["final_logit_softcapping"] = cap(m.final_logit_softcapping);
  if (family.scales_by_layer) json["scale_attn_by_inverse_layer_idx"] = m.scale_attn_by_inverse_layer_idx;
  if (family.scales_queries)
    json["query_pre_attn_scalar"] = m.query_pre_attn_scalar > 0 ? m.query_pre_attn_scalar : m.head_dim();
}

void write_experts(const Family& family, const HfConfig& config, Json& json) {
  const ModelConfig& m = config.model;
  if (family.sparse) {
    json[own_name(family, "num_experts")] = m.num_experts;
    json["num_experts_per_tok"] = m.num_experts_per_tok;
    if (!family.norms_topk && !family.deepseek_experts) json["norm_topk_prob"] = m.norm_topk_prob;
    if (family.clamps_swiglu) {
      json["swiglu_alpha"] = m.swiglu_alpha > 0 ? m.swiglu_alpha : family.defaults.swiglu_alpha;
      json["swiglu_limit"] = m.swiglu_limit > 0 ? m.swiglu_limit : family.defaults.swiglu_limit;
    }
    if (!family.deepseek_experts ||
        config.router_aux_loss_coef != family.default_aux_loss_coef)  // no member of DeepSeek's class
      json["router_aux_loss_coef"] = config.router_aux_loss_coef;
    json["output_router_logits"] = false;
  }
  if (family.mixed_layers) {
    json["moe_intermediate_size"] = m.expert_intermediate_size();
    if (family.deepseek_experts) return write_deepseek_experts(family, m, json);
    if (family.has_shared_experts) json["shared_expert_intermediate_size"] = m.shared_intermediate_size();
    json["decoder_sparse_step"] = m.decoder_sparse_step;
    json["mlp_only_layers"] = m.mlp_only_layers;
  }
}

}  // namespace

std::string hf_config_text(const HfConfig& config, Dtype dtype) {
  const auto& m = config.model;
  const auto optional = [](const std::optional<int64_t>& id) { return id ? Json(*id) : Json(); };
  const auto& ends = config.eos_token_ids;
  const Family& family = family_of(m);
  const char* dtype_text = dtype == Dtype::kBF16 ? "bfloat16" : "float32";
  const auto own = [&](const char* name) { return own_name(family, name); };
  Json json{
      {"architectures", Json::array({family.architecture})},
      {"model_type", m.family},
      {"vocab_size", m.vocab_size},
      {own("hidden_size"), m.hidden_size},
      {own("intermediate_size"), m.intermediate_size},
      {own("num_hidden_layers"), m.num_hidden_layers},
      {own("num_attention_heads"), m.num_attention_heads},
      {own("max_position_embeddings"), m.max_position_embeddings},
      {"initializer_range", m.initializer_range},
      {"tie_word_embeddings", m.tie_word_embeddings},
      {own("hidden_act"), family.activation},
      {"use_cache", true},
      {"torch_dtype", dtype_text},  // version 4
      {"dtype", dtype_text},        // version 5
      {"bos_token_id", optional(config.bos_token_id)},
      {"eos_token_id", ends.size() > 1 ? Json(ends) : optional(config.eos_token_id())},
      {"pad_token_id", optional(config.pad_token_id)},
  };
  if (family.grouped_keys) {
    json["num_key_value_heads"] = m.kv_heads();
  }
  for (const std::string& dropout : family.dropouts) json[dropout] = 0.0;
  for (const auto& [dropout, rate] : config.dropouts) json[dropout] = rate;
  if (config.upcasts_attention) json[kUpcastsAttention] = true;
  if (family.parallel) json["use_parallel_residual"] = true;
  if (!family.bias_member.empty()) json[family.bias_member] = family.biases != Biases::kNone;
  write_windows(family, m, json);
  write_logits(family, m, json);
  if (family.latent_attention) write_latents(m, json);
  if (family.positions == Positions::kRotary) write_hf_rope(family, m, json);
  if (family.clips_qkv) json["clip_qkv"] = m.clip_qkv > 0 ? Json(m.clip_qkv) : Json();
  if (family.fixed_norm_eps == 0) json[own("rms_norm_eps")] = m.rms_norm_eps;
  // Written if `transformers` would use another default, or if it was given.
  if (m.attention_head_dim > 0 || family.defaults.attention_head_dim > 0) json["head_dim"] = m.head_dim();
  write_experts(family, config, json);
  return json.dump(2) + "\n";
}

}  // namespace athanor::inline checkpoint
