#include "checkpoint/model_identity.h"

#include <vector>

#include "base/error.h"

namespace athanor {
namespace {

class JsonFields : public Fields {
 public:
  nlohmann::json object = nlohmann::json::object();

  void field(const char* key, bool& value, const char*, const Check<bool>&) override { object[key] = value; }
  void field(const char* key, int64_t& value, const char*, const Check<int64_t>&) override { object[key] = value; }
  void field(const char* key, double& value, const char*, const Check<double>&) override { object[key] = value; }
  void field(const char* key, std::string& value, const char*, const Check<std::string>&) override {
    object[key] = value;
  }
  void field(const char* key, std::vector<double>& value, const char*, const Check<std::vector<double>>&) override {
    object[key] = value;
  }
  void field(const char* key, std::vector<std::string>& value, const char*,
             const Check<std::vector<std::string>>&) override {
    object[key] = value;
  }

 protected:
  bool enter(const char*, const char*) override { return false; }
  void leave() override {}
};

}  // namespace

nlohmann::json model_identity(const ModelConfig& model) {
  auto copy = model;
  copy.num_key_value_heads = model.kv_heads();
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
  const auto identity = model_identity(expected);
  for (const auto& [key, value] : identity.items()) {
    const auto found = stored.find(key);
    if (found == stored.end()) {
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
