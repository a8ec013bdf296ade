#include "checkpoint/model_identity.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <variant>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/hf_layout.h"
#include "checkpoint/json_members.h"
#include "config/checks.h"
#include "config/families.h"

namespace athanor::inline checkpoint {
namespace {

class JsonFields : public Fields {
 public:
  nlohmann::json object = nlohmann::json::object();

  void field(const char* key, bool& value, const char*, const Check<bool>&) override { at(key) = value; }
  void field(const char* key, int64_t& value, const char*, const Check<int64_t>&) override { at(key) = value; }
  void field(const char* key, double& value, const char*, const Check<double>&) override { at(key) = value; }
  void field(const char* key, std::string& value, const char*, const Check<std::string>&) override { at(key) = value; }
  void field(const char* key, std::vector<double>& value, const char*, const Check<std::vector<double>>&) override {
    at(key) = value;
  }
  void field(const char* key, std::vector<int64_t>& value, const char*, const Check<std::vector<int64_t>>&) override {
    at(key) = value;
  }
  void field(const char* key, std::vector<std::string>& value, const char*,
             const Check<std::vector<std::string>>&) override {
    at(key) = value;
  }
  // A model has no such field.
  void field(const char*, CountOrAuto&, const char*, const Check<CountOrAuto>&) override {}
  void field(const char* key, NameOrNames& value, const char*, const Check<NameOrNames>&) override {
    std::visit([&](const auto& v) { at(key) = v; }, value);
  }

 protected:
  bool enter(const char* key, const char*) override {
    prefix_ = std::string(key) + ".";
    return true;
  }
  void leave() override { prefix_.clear(); }
  size_t enter_list(const char*, const char*, size_t) override { return 0; }  // a model has no lists of tables
  void enter_item() override {}
  void leave_list() override {}

 private:
  nlohmann::json& at(const char* key) { return object[prefix_ + key]; }

  std::string prefix_;
};

using FieldPointer = std::variant<bool*, int64_t*, double*, std::string*, std::vector<double>*, std::vector<int64_t>*,
                                  std::vector<std::string>*, NameOrNames*>;

// Pointers to the fields by their keys, such as "rope_scaling.factor".
class FieldPointers : public Fields {
 public:
  std::map<std::string, FieldPointer> pointers;

  void field(const char* key, bool& value, const char*, const Check<bool>&) override { at(key) = &value; }
  void field(const char* key, int64_t& value, const char*, const Check<int64_t>&) override { at(key) = &value; }
  void field(const char* key, double& value, const char*, const Check<double>&) override { at(key) = &value; }
  void field(const char* key, std::string& value, const char*, const Check<std::string>&) override { at(key) = &value; }
  void field(const char* key, std::vector<double>& value, const char*, const Check<std::vector<double>>&) override {
    at(key) = &value;
  }
  void field(const char* key, std::vector<int64_t>& value, const char*, const Check<std::vector<int64_t>>&) override {
    at(key) = &value;
  }
  void field(const char* key, std::vector<std::string>& value, const char*,
             const Check<std::vector<std::string>>&) override {
    at(key) = &value;
  }
  // A model has no such field.
  void field(const char*, CountOrAuto&, const char*, const Check<CountOrAuto>&) override {}
  void field(const char* key, NameOrNames& value, const char*, const Check<NameOrNames>&) override { at(key) = &value; }

 protected:
  bool enter(const char* key, const char*) override {
    prefix_ = std::string(key) + ".";
    return true;
  }
  void leave() override { prefix_.clear(); }
  size_t enter_list(const char*, const char*, size_t) override { return 0; }
  void enter_item() override {}
  void leave_list() override {}

 private:
  FieldPointer& at(const char* key) { return pointers[prefix_ + key]; }

  std::string prefix_;
};

void copy_fields(ModelConfig from, ModelConfig& to, const std::vector<std::string>& keys) {
  FieldPointers there, here;
  from.describe(there);
  to.describe(here);
  for (const auto& key : keys) {
    const auto& source = there.pointers.at(key);
    std::visit([&](auto* target) { *target = *std::get<decltype(target)>(source); }, here.pointers.at(key));
  }
}

/// Fields that are missing in checkpoints from the time when only their default existed.
bool is_younger_than_checkpoints(const std::string& key) {
  return key.starts_with("rope_scaling.") || key == "head_dim" || key == "moe_intermediate_size" ||
         key == "decoder_sparse_step" || key == "mlp_only_layers" || key == "router_score" ||
         key == "routed_scaling_factor" || key == "num_shared_experts" || key == "shared_expert_intermediate_size" ||
         key == "sliding_window" || key == "partial_rotary_factor" || key == "full_attention_layers" ||
         key == "window_rope_theta" || key == "query_pre_attn_scalar" || key == "scale_attn_by_inverse_layer_idx" ||
         key.ends_with("_lora_rank") || key.starts_with("qk_") || key == "v_head_dim" || key.ends_with("_group") ||
         key == "attn_logit_softcapping" || key == "final_logit_softcapping" || key.starts_with("swiglu_");
}

}  // namespace

nlohmann::json model_identity(const ModelConfig& model) {
  auto copy = model;
  copy.num_key_value_heads = model.kv_heads();
  // A value that is written out and the same value by default are one model.
  if (copy.head_dim() * copy.num_attention_heads == copy.hidden_size) copy.attention_head_dim = 0;
  if (copy.moe_intermediate_size == copy.intermediate_size) copy.moe_intermediate_size = 0;
  auto& original = copy.rope_scaling.original_max_position_embeddings;
  if (original == 0 && uses_original_length(copy.rope_scaling)) original = model.max_position_embeddings;
  if (copy.query_pre_attn_scalar == copy.head_dim()) copy.query_pre_attn_scalar = 0;
  if (model.shared_expert_intermediate_size % model.expert_intermediate_size() == 0) {
    copy.num_shared_experts = model.shared_intermediate_size() / model.expert_intermediate_size();
    copy.shared_expert_intermediate_size = 0;
  } else {
    copy.num_shared_experts = 1;
  }
  copy.norm_topk_prob = model.norms_topk();
  copy.full_attention_layers.clear();
  for (int64_t l = 0; copy.sliding_window > 0 && l < copy.num_hidden_layers; ++l)
    if (model.window_of(l) == 0) copy.full_attention_layers.push_back(l);
  if (std::cmp_equal(copy.full_attention_layers.size(), copy.num_hidden_layers)) {
    copy.sliding_window = 0;
    copy.full_attention_layers.clear();
  }
  const Family* family = find_family(model.family);
  const bool own_theta = family && family->windows_own_theta && copy.sliding_window > 0;
  copy.window_rope_theta = own_theta ? model.theta_in_windows() : 0;
  JsonFields fields;
  copy.describe(fields);
  for (const char* key : {"from", "initializer_range"}) fields.object.erase(key);
  // Learned positions are a table of the model; rotary ones are computed.
  if (!family || family->positions == Positions::kRotary) fields.object.erase("max_position_embeddings");
  return fields.object;
}

namespace {

// Returns the name of a field in checkpoint.allow_model_change.
std::string name_to_allow(const std::string& key) {
  return key == "window_rope_theta" ? "rope_theta" : key.substr(0, key.find('.'));
}

// True for the number of rows of a table, which may grow: new rows begin at random.
bool has_rows(const std::string& name) { return name == "vocab_size" || name == "max_position_embeddings"; }

bool may_be_allowed(const std::string& key) {
  const std::string name = name_to_allow(key);
  return name == "rope_theta" || name == "rope_scaling" || has_rows(name);
}

bool grows(const nlohmann::json& there, const nlohmann::json& here) {
  return there.is_number_integer() && here.is_number_integer() && there.get<int64_t>() < here.get<int64_t>();
}

// Returns how to allow what was refused, if there is a way.
std::string remedy_for(const std::vector<std::string>& refused) {
  std::vector<std::string> names;
  for (const auto& key : refused) {
    if (!may_be_allowed(key)) return "choose another train.run_dir or make the model equal";
    names.push_back("\"" + name_to_allow(key) + "\"");
  }
  return fmt::format("make the model equal or, if the change is intended, set checkpoint.allow_model_change to [{}]",
                     join(names));
}

nlohmann::json fields_of(ModelConfig model) {
  JsonFields fields;
  model.describe(fields);
  return fields.object;
}

std::string remedy_for_written(const std::string& key) {
  if (!may_be_allowed(key)) return "";
  return fmt::format(" (set checkpoint.allow_model_change = [\"{}\"] to change it)", name_to_allow(key));
}

}  // namespace

std::vector<std::string> check_same_model(const nlohmann::json& stored, const ModelConfig& expected,
                                          const std::string& where, const std::vector<std::string>& allowed) {
  std::vector<std::string> differences, refused, changes;
  const auto note = [&](const std::string& key, const nlohmann::json* there, const nlohmann::json& here) {
    const std::string line =
        fmt::format("{} is {} there, {} here", key, there ? JsonMembers::shown(*there) : "missing", here.dump());
    const bool asked = std::ranges::find(allowed, name_to_allow(key)) != allowed.end();
    if (asked && (!has_rows(key) || (there && grows(*there, here)))) return changes.push_back(line);
    differences.push_back(line);
    refused.push_back(key);
  };
  const auto identity = model_identity(expected), defaults = model_identity(ModelConfig{});
  for (const auto& [key, value] : identity.items()) {
    const auto found = stored.find(key);
    if (found == stored.end()) {
      if (!is_younger_than_checkpoints(key) || value != defaults[key]) note(key, nullptr, value);
    } else if (*found != value) {
      note(key, &*found, value);
    }
  }
  ATHANOR_CHECK_CHECKPOINT(differences.empty(), "{} is of another model: {}; {}", where, join(differences, "; "),
                           remedy_for(refused));
  return changes;
}

std::vector<std::string> resolve_model_from(RunConfig& config) {
  if (config.model.from.empty()) return {};
  const ModelConfig given = config.model;
  const std::filesystem::path folder = given.from;
  ATHANOR_CHECK_CHECKPOINT(!std::filesystem::is_regular_file(folder),
                           "model.from: {} is a file; name the folder that holds {}", given.from, kHfConfigName);
  ATHANOR_CHECK_CHECKPOINT(std::filesystem::is_directory(folder), "model.from: there is no folder {}", given.from);
  ATHANOR_CHECK_CHECKPOINT(is_hf_folder(folder), "model.from: {} is not a folder of transformers: it has no {}",
                           given.from, kHfConfigName);
  ModelConfig there = read_hf_config(folder / kHfConfigName).model;
  // The stored tensors tell whether the output layer is the embedding.
  if (there.tie_word_embeddings && has_weights(folder)) there = HfFolder::open(folder).model();
  const auto values = fields_of(given), values_there = fields_of(there);
  const auto& allowed = config.checkpoint.allow_model_change;
  std::vector<std::string> taken, lines;
  for (const auto& key : given.written.keys) {
    if (values.at(key) == values_there.at(key)) continue;
    const bool asked = std::ranges::find(allowed, name_to_allow(key)) != allowed.end();
    if (asked) taken.push_back(key);
    lines.push_back(fmt::format("model.{} is {} in {} and {} here: {}", key, values_there.at(key).dump(), given.from,
                                values.at(key).dump(),
                                asked ? "changed, as checkpoint.allow_model_change permits"
                                      : "not used, the model is that of the folder" + remedy_for_written(key)));
  }
  ModelConfig wanted = there;
  copy_fields(given, wanted, taken);
  check_same_model(model_identity(there), wanted, given.from, allowed);  // a vocabulary that shrinks
  wanted.from = given.from;
  wanted.written = given.written;
  wanted.written.resolved = true;
  const auto problems = find_contradictions(wanted);
  ATHANOR_CHECK_CHECKPOINT(problems.empty(), "{}: {}", given.from, join(problems, "; "));
  config.model = std::move(wanted);
  return lines;
}

}  // namespace athanor::inline checkpoint
