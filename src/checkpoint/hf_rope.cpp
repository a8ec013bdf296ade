#include "checkpoint/hf_rope.h"

#include <algorithm>
#include <set>

#include "checkpoint/hf_members.h"
#include "checkpoint/json_members.h"

namespace athanor::inline checkpoint {
namespace {

using Json = nlohmann::json;

const std::set<std::string> kKnownMembers = {
    "rope_type",        "type",      "rope_theta",       "partial_rotary_factor",
    "factor",           "beta_fast", "low_freq_factor",  "original_max_position_embeddings",
    "high_freq_factor", "beta_slow", "attention_factor", "mscale",
    "mscale_all_dim",   "truncate",  "short_factor",     "long_factor"};

// Returns what rotates the layers without a window, resolved as the classes of olmo3 and gemma3_text do it:
// rope_scaling and a theta outside belong to these layers alone. Those with a window, if there are any, have no
// scaling, and the same theta, unless the family has one for them.
Json rope_of_full_layers(const Family& family, const Json& config, ModelConfig& model,
                         std::vector<std::string>& problems) {
  JsonMembers top(config, problems);
  Json full{{"rope_type", "default"}}, sliding = full;
  if (const auto* both = top.find("rope_parameters")) {
    const bool is_nested =
        both->is_object() && (both->contains("full_attention") || both->contains("sliding_attention"));
    if (!is_nested) top.complain("rope_parameters", *both, "an object with full_attention and sliding_attention");
    for (const auto& [kind, into] : {std::pair{"full_attention", &full}, {"sliding_attention", &sliding}}) {
      if (!is_nested || !both->contains(kind) || (*both)[kind].is_null()) continue;
      *into = (*both)[kind];
      if (!into->is_object()) return top.complain(kind, *into, "an object"), Json::object();
    }
  }
  if (const auto* scaling = top.find("rope_scaling")) {
    if (!scaling->is_object()) return top.complain("rope_scaling", *scaling, "an object"), Json::object();
    full.update(*scaling);
  }
  const double theta = family.defaults.rope_theta;
  if (!full.contains("rope_theta")) full["rope_theta"] = top.number("rope_theta", theta);
  if (!sliding.contains("rope_theta"))
    sliding["rope_theta"] =
        family.windows_own_theta ? top.number("rope_local_base_freq", family.defaults.window_rope_theta) : theta;
  bool any_window = false;
  for (int64_t l = 0; l < std::min(model.num_hidden_layers, kMostLayers); ++l) any_window |= model.window_of(l) > 0;
  if (!any_window) return full;
  JsonMembers members(sliding, problems);
  for (const char* type : {"rope_type", "type"}) members.only(type, "default");
  for (const auto& [key, value] : sliding.items())
    if (key != "rope_type" && key != "type" && key != "rope_theta" && !(key == "partial_rotary_factor" && value == 1.0))
      problems.push_back(fmt::format("{} = {} of layers with a window is not supported", key, members.shown(value)));
  if (family.windows_own_theta) {
    model.window_rope_theta = members.number("rope_theta", 0);
    if (!(model.window_rope_theta > 0)) members.complain("rope_theta", sliding["rope_theta"], "a number above 0");
  } else if (sliding["rope_theta"] != full["rope_theta"])
    problems.push_back(
        fmt::format("rope_theta is {} in layers without a window and {} in those with one: one for both is supported",
                    full["rope_theta"].dump(), sliding["rope_theta"].dump()));
  return full;
}

/// Returns the object that applies; null if there is none.
const Json* find_rope(const JsonMembers& members) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto* found = members.find(key);
    if (found && !found->empty()) return found;
  }
  return nullptr;
}

double above_zero(JsonMembers& rope, const char* key, std::optional<double> fallback) {
  const auto* value = rope.find(key);
  if (!value && fallback) return *fallback;
  if (value && value->is_number() && value->get<double>() > 0) return value->get<double>();
  rope.complain(key, value ? *value : Json(), "a number above 0");
  return 1;
}

void read_yarn(JsonMembers& rope, const ModelConfig& model, RopeScaling& out) {
  const RopeScaling defaults;
  const auto or_default = [&](const char* key, double fallback) {  // 0 means the default there
    const double value = rope.number(key, fallback);
    return value > 0 ? value : fallback;
  };
  out.beta_fast = or_default("beta_fast", defaults.beta_fast);
  out.beta_slow = or_default("beta_slow", defaults.beta_slow);
  out.mscale = rope.number("mscale", 0);
  out.mscale_all_dim = rope.number("mscale_all_dim", 0);
  out.truncate = rope.boolean("truncate", true);
  if (rope.find("attention_factor")) out.attention_factor = above_zero(rope, "attention_factor", {});
  out.factor = above_zero(
      rope, "factor",
      static_cast<double>(model.max_position_embeddings) / static_cast<double>(out.original_max_position_embeddings));
}

void read_factors(JsonMembers& rope, const char* key, std::vector<double>& factors) {
  const auto* value = rope.find(key);
  const auto is_above_zero = [](const Json& each) { return each.is_number() && each.get<double>() > 0; };
  if (!value || !value->is_array() || !std::ranges::all_of(*value, is_above_zero))
    return rope.complain(key, value ? *value : Json(), "a list of numbers above 0");
  factors = value->get<std::vector<double>>();
}

// A factor below 1 scales attention as 1 does.
void read_longrope(JsonMembers& rope, const ModelConfig& model, RopeScaling& out) {
  read_factors(rope, "short_factor", out.short_factor);
  read_factors(rope, "long_factor", out.long_factor);
  if (rope.find("attention_factor")) out.attention_factor = above_zero(rope, "attention_factor", {});
  out.factor = std::max(1.0, above_zero(rope, "factor",
                                        static_cast<double>(model.max_position_embeddings) /
                                            static_cast<double>(out.original_max_position_embeddings)));
}

void read_scaling(const Family& family, const Json& json, const Json& config, ModelConfig& model,
                  std::vector<std::string>& problems) {
  JsonMembers rope(json, problems), top(config, problems);
  RopeScaling& out = model.rope_scaling;
  const auto* type = rope.find("rope_type");
  if (!type) type = rope.find("type");
  if (type && !type->is_string()) return rope.complain("rope_type", *type, "a text");
  if (type) out.rope_type = type->get<std::string>();
  if (family.longrope_alone && out.rope_type == "su") out.rope_type = "longrope";  // its name in older files
  for (const auto& [key, value] : json.items()) {
    if (!kKnownMembers.contains(key)) {
      problems.push_back(fmt::format("{} = {} of the rotary positions is not supported", key, rope.shown(value)));
    }
  }
  const auto scaling = out.type();
  if (scaling == RopeType::kDefault) return;
  if (!scaling || (family.longrope_alone && scaling != RopeType::kLongRope)) {
    problems.push_back(fmt::format(
        "rope_type \"{}\" is not supported, only {}", out.rope_type,
        family.longrope_alone ? "\"default\" and \"longrope\""
                              : "\"default\", \"linear\", \"dynamic\", \"yarn\", \"llama3\" and \"longrope\""));
    out = RopeScaling{};
    return;
  }
  if (uses_original_length(out)) {
    constexpr int64_t kOfPhi3 = 4096;  // a member of its class outside, which decides
    const int64_t inner = rope.size("original_max_position_embeddings", model.max_position_embeddings);
    out.original_max_position_embeddings =
        top.size("original_max_position_embeddings", family.longrope_alone ? kOfPhi3 : inner);
  }
  if (scaling == RopeType::kLongRope) return read_longrope(rope, model, out);
  if (scaling == RopeType::kYarn) return read_yarn(rope, model, out);
  out.factor = above_zero(rope, "factor", {});
  if (scaling != RopeType::kLlama3) return;
  out.low_freq_factor = above_zero(rope, "low_freq_factor", {});
  out.high_freq_factor = above_zero(rope, "high_freq_factor", {});
}

}  // namespace

void read_hf_rope(const Family& family, const Json& config, ModelConfig& model, std::vector<std::string>& problems) {
  JsonMembers top(config, problems);
  double theta = top.number(own_name(family, "rope_theta"), model.rope_theta);
  double turned =
      family.partial_rotation ? top.number(own_name(family, "partial_rotary_factor"), model.partial_rotary_factor) : 1;
  Json of_full_layers;
  if (family.windows_unscaled) of_full_layers = rope_of_full_layers(family, config, model, problems);
  if (const auto* rope = family.windows_unscaled ? &of_full_layers : find_rope(top)) {
    if (!rope->is_object()) return top.complain("rope_scaling or rope_parameters", *rope, "an object");
    model.rope_scaling = {};
    JsonMembers members(*rope, problems);
    theta = members.number("rope_theta", theta);
    if (family.partial_rotation)
      turned = members.number("partial_rotary_factor", turned);
    else
      members.only("partial_rotary_factor", 1.0);
    // An original length outside counts only where all layers are alike.
    read_scaling(family, *rope, family.windows_unscaled ? Json::object() : config, model, problems);
  } else if (top.find("rope_parameters")) {
    model.rope_scaling = {};  // empty, which is not as if it were absent
  }
  if (!(theta > 0)) problems.push_back(fmt::format("rope_theta is {}, expected a number above 0", theta));
  model.rope_theta = theta;
  model.partial_rotary_factor = turned;
}

void write_hf_rope(const Family& family, const ModelConfig& m, Json& config) {
  const RopeScaling& r = m.rope_scaling;
  const RopeScaling defaults;
  Json rope{{"rope_type", r.rope_type}};
  if (r.type() != RopeType::kDefault) rope["factor"] = r.factor;
  if (uses_original_length(r)) {
    rope["original_max_position_embeddings"] =
        r.original_max_position_embeddings > 0 ? r.original_max_position_embeddings : m.max_position_embeddings;
  }
  if (r.type() == RopeType::kLongRope) {
    rope["short_factor"] = r.short_factor;
    rope["long_factor"] = r.long_factor;
    if (family.longrope_alone) config["original_max_position_embeddings"] = rope["original_max_position_embeddings"];
  }
  if (r.type() == RopeType::kLlama3) {
    rope["low_freq_factor"] = r.low_freq_factor;
    rope["high_freq_factor"] = r.high_freq_factor;
  }
  const auto unless_default = [&](const char* key, const auto& value, const auto& fallback) {
    if (value != fallback) rope[key] = value;
  };
  unless_default("attention_factor", r.attention_factor, defaults.attention_factor);
  unless_default("beta_fast", r.beta_fast, defaults.beta_fast);
  unless_default("beta_slow", r.beta_slow, defaults.beta_slow);
  unless_default("mscale", r.mscale, defaults.mscale);
  unless_default("mscale_all_dim", r.mscale_all_dim, defaults.mscale_all_dim);
  unless_default("truncate", r.truncate, defaults.truncate);
  config[own_name(family, "rope_theta")] = m.rope_theta;
  config["rope_scaling"] = r.type() == RopeType::kDefault ? Json() : rope;
  rope["rope_theta"] = m.rope_theta;
  if (family.partial_rotation)
    config[own_name(family, "partial_rotary_factor")] = rope["partial_rotary_factor"] = m.partial_rotary_factor;
  config["rope_parameters"] = rope;
  if (family.windows_unscaled)
    config["rope_parameters"] = {
        {"full_attention", rope},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", m.theta_in_windows()}}}};
  if (family.windows_own_theta) config["rope_local_base_freq"] = m.theta_in_windows();  // version 4
}

}  // namespace athanor::inline checkpoint
