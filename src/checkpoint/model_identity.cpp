#include "checkpoint/model_identity.h"

#include <vector>

#include "base/error.h"

namespace athanor {
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

/// Fields that checkpoints may lack which were written before there were any others but the default.
bool is_younger_than_checkpoints(const std::string& key) {
  return key.starts_with("rope_scaling.") || key == "head_dim" || key == "moe_intermediate_size" ||
         key == "decoder_sparse_step" || key == "mlp_only_layers" || key == "router_score" ||
         key == "routed_scaling_factor" || key == "num_shared_experts";
}

}  // namespace

nlohmann::json model_identity(const ModelConfig& model) {
  auto copy = model;
  copy.num_key_value_heads = model.kv_heads();
  // What is written out and what is left to its default is one model.
  if (copy.head_dim() * copy.num_attention_heads == copy.hidden_size) copy.attention_head_dim = 0;
  if (copy.moe_intermediate_size == copy.intermediate_size) copy.moe_intermediate_size = 0;
  auto& original = copy.rope_scaling.original_max_position_embeddings;
  if (original == 0 && uses_original_length(copy.rope_scaling)) original = model.max_position_embeddings;
  JsonFields fields;
  copy.describe(fields);
  for (const char* key : {"from", "initializer_range", "max_position_embeddings"}) fields.object.erase(key);
  return fields.object;
}

void check_same_model(const nlohmann::json& stored, const ModelConfig& expected, const std::string& where) {
  std::string differences;
  const auto note = [&](const std::string& key, const std::string& there, const std::string& here) {
    differences += (differences.empty() ? "" : "; ") + key + " is " + there + " there, " + here + " here";
  };
  const auto identity = model_identity(expected), defaults = model_identity(ModelConfig{});
  for (const auto& [key, value] : identity.items()) {
    const auto found = stored.find(key);
    if (found == stored.end()) {
      if (is_younger_than_checkpoints(key) && value == defaults[key]) continue;
      note(key, "missing", value.dump());
    } else if (*found != value) {
      note(key, found->dump(), value.dump());
    }
  }
  ATHANOR_CHECK_CHECKPOINT(differences.empty(),
                           "{} is of another model: {}; choose another train.run_dir or make the model equal", where,
                           differences);
}

}  // namespace athanor
