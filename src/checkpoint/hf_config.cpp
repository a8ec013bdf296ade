#include "checkpoint/hf_config.h"

#include <cmath>
#include <vector>

#include "arch/inventory.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoint/strict_json.h"
#include "config/checks.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

struct Family {
  const char* name;  // model_type, and ours
  const char* architecture;
};
constexpr Family kFamilies[] = {{"olmo", "OlmoForCausalLM"}, {"olmoe", "OlmoeForCausalLM"}};

// Far above any model; they bound how many names a damaged file makes us spell.
constexpr int64_t kMaxLayers = 100'000;
constexpr int64_t kMaxExpertsInAll = 10'000'000;
constexpr int64_t kMaxSize = int64_t{1} << 31;

/// Reads members of one object and collects what is wrong with them. A member that is null is as good as absent.
class Members {
 public:
  Members(const Json& object, std::vector<std::string>& problems) : object_(object), problems_(problems) {}

  const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  /// From `low` to kMaxSize; `fallback` (transformers' default) if absent.
  int64_t size(const char* key, int64_t fallback, int64_t low = 1) {
    const auto* value = find(key);
    if (!value) return fallback;
    if (value->is_number_integer() && *value >= low && *value <= kMaxSize) return value->get<int64_t>();
    complain(key, *value, fmt::format("a whole number from {} to {}", low, kMaxSize));
    return fallback;
  }
  double number(const char* key, double fallback) {
    const auto* value = find(key);
    if (!value) return fallback;
    if (value->is_number() && value->get<double>() >= 0) return value->get<double>();
    complain(key, *value, "a number, 0 or more");
    return fallback;
  }
  bool boolean(const char* key, bool fallback) {
    const auto* value = find(key);
    if (!value) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    complain(key, *value, "true or false");
    return fallback;
  }
  /// An option of which we compute one value only.
  void only(const char* key, const Json& supported) {
    const auto* value = find(key);
    if (value && *value != supported) {
      problems_.push_back(fmt::format("{} = {} is not supported, only {}", key, value->dump(), supported.dump()));
    }
  }
  void absent(const char* key) {
    if (const auto* value = find(key)) problems_.push_back(fmt::format("{} = {} is not supported", key, value->dump()));
  }
  std::optional<int64_t> token_id(const char* key) {
    const auto* value = find(key);
    if (value && value->is_array() && !value->empty()) value = &value->front();
    if (!value || (value->is_number_integer() && *value < 0)) return std::nullopt;
    if (value->is_number_integer() && *value <= kMaxSize) return value->get<int64_t>();
    complain(key, *value, "a token id or a list of them");
    return std::nullopt;
  }

 private:
  void complain(const char* key, const Json& value, const std::string& expected) {
    auto shown = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (shown.size() > 40) shown = shown.substr(0, 40) + "...";
    problems_.push_back(fmt::format("{} is {}, expected {}", key, shown, expected));
  }

  const Json& object_;
  std::vector<std::string>& problems_;
};

const Family* find_family(const Json& json, const std::string& where, std::vector<std::string>& problems) {
  const auto type = json_string(json, "model_type", where);
  const Family* found = nullptr;
  for (const auto& family : kFamilies) {
    if (type == family.name) found = &family;
  }
  ATHANOR_CHECK_CHECKPOINT(found, "{}: model_type \"{}\" is not supported; expected olmo or olmoe", where, type);
  const auto architectures = json.find("architectures");
  if (architectures != json.end() && !architectures->is_null() && *architectures != Json{found->architecture}) {
    problems.push_back(
        fmt::format("architectures = {} is not supported, only [\"{}\"]", architectures->dump(), found->architecture));
  }
  return found;
}

double read_rope_theta(const Json& json, std::vector<std::string>& problems) {
  Members top(json, problems);
  double theta = top.number("rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto* rope = top.find(key);
    if (!rope) continue;
    const auto kind = rope->is_object() ? rope->value("rope_type", rope->value("type", Json("default"))) : Json();
    if (kind != "default") {
      problems.push_back(fmt::format("{} = {} is not supported, only rope_type \"default\"", key, rope->dump()));
      continue;
    }
    Members inner(*rope, problems);
    theta = inner.number("rope_theta", theta);
    inner.only("partial_rotary_factor", 1.0);
  }
  if (!(theta > 0)) problems.push_back(fmt::format("rope_theta is {}, expected a number above 0", theta));
  return theta;
}

void refuse_what_we_do_not_compute(const Json& json, std::vector<std::string>& problems) {
  Members members(json, problems);
  members.only("hidden_act", "silu");
  members.only("attention_bias", false);
  members.only("attention_dropout", 0.0);
  members.only("partial_rotary_factor", 1.0);
  members.absent("quantization_config");
  members.absent("sliding_window");
}

ModelConfig read_model(const Family& family, const Json& json, std::vector<std::string>& problems) {
  Members members(json, problems);
  const bool moe = std::string_view(family.name) == "olmoe";
  ModelConfig m;  // the fallbacks below are those of OlmoConfig and OlmoeConfig
  m.family = family.name;
  m.vocab_size = members.size("vocab_size", 50304);
  m.hidden_size = members.size("hidden_size", moe ? 2048 : 4096);
  m.intermediate_size = members.size("intermediate_size", moe ? 2048 : 11008);
  m.num_hidden_layers = members.size("num_hidden_layers", moe ? 16 : 32);
  m.num_attention_heads = members.size("num_attention_heads", moe ? 16 : 32);
  m.num_key_value_heads = members.size("num_key_value_heads", m.num_attention_heads);
  m.max_position_embeddings = members.size("max_position_embeddings", moe ? 4096 : 2048);
  m.initializer_range = members.number("initializer_range", 0.02);
  m.tie_word_embeddings = members.boolean("tie_word_embeddings", false);
  m.clip_qkv = members.number("clip_qkv", 0.0);
  m.rope_theta = read_rope_theta(json, problems);
  if (moe) {
    m.num_experts = members.size("num_experts", members.size("num_local_experts", 64));
    m.num_experts_per_tok = members.size("num_experts_per_tok", 8);
    m.norm_topk_prob = members.boolean("norm_topk_prob", false);
    m.rms_norm_eps = members.number("rms_norm_eps", 1e-5);
  }
  return m;
}

/// Sizes that no machine has, so that products of shapes stay countable everywhere.
void check_countable(const ModelConfig& model, std::vector<std::string>& problems) {
  if (model.num_hidden_layers > kMaxLayers) {
    problems.push_back(
        fmt::format("num_hidden_layers is {}, expected at most {}", model.num_hidden_layers, kMaxLayers));
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
  const auto* family = find_family(json, where, problems);
  HfConfig config;
  config.model = read_model(*family, json, problems);
  Members members(json, problems);
  config.bos_token_id = members.token_id("bos_token_id");
  config.eos_token_id = members.token_id("eos_token_id");
  config.pad_token_id = members.token_id("pad_token_id");
  config.router_aux_loss_coef = members.number("router_aux_loss_coef", 0.01);
  refuse_what_we_do_not_compute(json, problems);
  if (problems.empty()) problems = find_contradictions(config.model);
  if (problems.empty()) check_countable(config.model, problems);
  ATHANOR_CHECK_CHECKPOINT(problems.empty(), "{}: {}", where, join(problems, "; "));
  return config;
}

HfConfig read_hf_config(const std::filesystem::path& path) { return parse_hf_config(read_file(path), path.string()); }

std::string hf_config_text(const HfConfig& config, Dtype dtype) {
  const auto& m = config.model;
  const auto optional = [](const std::optional<int64_t>& id) { return id ? Json(*id) : Json(); };
  const bool moe = m.is_moe();
  const char* dtype_text = dtype == Dtype::kBF16 ? "bfloat16" : "float32";
  Json json{
      {"architectures", Json::array({kFamilies[moe ? 1 : 0].architecture})},
      {"model_type", m.family},
      {"vocab_size", m.vocab_size},
      {"hidden_size", m.hidden_size},
      {"intermediate_size", m.intermediate_size},
      {"num_hidden_layers", m.num_hidden_layers},
      {"num_attention_heads", m.num_attention_heads},
      {"num_key_value_heads", m.kv_heads()},
      {"max_position_embeddings", m.max_position_embeddings},
      {"initializer_range", m.initializer_range},
      {"tie_word_embeddings", m.tie_word_embeddings},
      {"clip_qkv", m.clip_qkv > 0 ? Json(m.clip_qkv) : Json()},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"use_cache", true},
      {"rope_theta", m.rope_theta},  // version 4
      {"rope_scaling", nullptr},
      {"rope_parameters", {{"rope_theta", m.rope_theta}, {"rope_type", "default"}}},  // version 5
      {"torch_dtype", dtype_text},
      {"dtype", dtype_text},
      {"bos_token_id", optional(config.bos_token_id)},
      {"eos_token_id", optional(config.eos_token_id)},
      {"pad_token_id", optional(config.pad_token_id)},
  };
  if (moe) {
    json["num_experts"] = m.num_experts;
    json["num_experts_per_tok"] = m.num_experts_per_tok;
    json["norm_topk_prob"] = m.norm_topk_prob;
    json["rms_norm_eps"] = m.rms_norm_eps;
    json["router_aux_loss_coef"] = config.router_aux_loss_coef;
    json["output_router_logits"] = false;
  }
  return json.dump(2) + "\n";
}

}  // namespace athanor
