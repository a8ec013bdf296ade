// Tests export and import together: a model that is written as a transformers folder can be read back unchanged, and
// folders that do not fit are refused with a list of all errors.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/half.h"
#include "base/random.h"
#include "base/testing/folder_test.h"
#include "checkpoint/hf_export.h"
#include "checkpoint/hf_import.h"
#include "checkpoint/hf_kept.h"
#include "checkpoint/hf_layout.h"
#include "checkpoint/testing/thread_team.h"

namespace athanor::hf_folder_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

HfConfig small_model(bool moe, bool tied = false) {
  HfConfig config;
  auto& m = config.model;
  m.family = moe ? "olmoe" : "olmo";
  m.hidden_size = 8;
  m.num_hidden_layers = 2;
  m.num_attention_heads = 2;
  m.num_key_value_heads = 1;
  m.intermediate_size = 6;
  m.num_experts = moe ? 3 : 0;
  m.num_experts_per_tok = moe ? 2 : 0;
  m.vocab_size = 11;
  m.tie_word_embeddings = tied;
  config.eos_token_ids = {2};
  return config;
}

std::vector<float> values_of(const ParameterSpec& parameter) {
  const CounterRandom random(7, parameter.name);
  std::vector<float> values(static_cast<size_t>(parameter.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
  return values;
}

void read_values(const ParameterSpec& parameter, int64_t first, std::span<float> out) {
  std::copy_n(values_of(parameter).begin() + first, out.size(), out.begin());
}

constexpr const char* kTokenizer = R"({"version":"1.0","added_tokens":[{"id":2,"content":"<|endoftext|>"}],
  "model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";

class HfFolderTest : public FolderTest {
 protected:
  fs::path path_;
  void SetUp() override {
    FolderTest::SetUp();
    path_ = folder_ / "model";
  }
  void write(const HfConfig& config, const HfExportOptions& options = {}) {
    export_hf_folder(path_, config, read_values, options);
  }
  std::string open_refusal() {
    return message_of<CheckpointError>([&] { HfFolder::open(path_); });
  }
  /// Writes model.safetensors again with every tensor for which `keep` returns true; `keep` may rename and reshape it.
  void rewrite(const std::function<bool(TensorSpec&)>& keep) {
    const auto name = path_ / kHfWeightsName;
    const auto file = SafetensorsFile::open(name);
    std::vector<TensorSpec> specs;
    std::vector<std::span<const std::byte>> data;
    for (const auto& [tensor, entry] : file.tensors()) {
      TensorSpec spec{tensor, entry.dtype, entry.shape};
      if (!keep(spec)) continue;
      specs.push_back(spec);
      data.push_back(file.data(tensor));
    }
    SafetensorsWriter writer(name, specs);
    for (const auto& bytes : data) writer.append(bytes.data(), bytes.size());
    writer.commit();
  }
};

TEST_F(HfFolderTest, ATeamSharesTheFilesAndWritesWhatOneProcessWrites) {
  const auto config = small_model(true);
  const HfExportOptions options{.dtype = Dtype::kBF16, .max_shard_bytes = 500, .extra_files = {{"a.json", "{}"}}};
  export_hf_folder(folder_ / "one", config, read_values, options);
  std::vector<int64_t> worked(3);
  on_thread_team(3, [&](Team team) {
    team.worked = [&](int64_t bytes) { worked[static_cast<size_t>(team.index)] += bytes; };
    export_hf_folder(folder_ / "three", config, read_values, options, team);
  });
  size_t num_files = 0;
  for (const auto& each : fs::directory_iterator(folder_ / "one")) {
    EXPECT_EQ(read_file(each.path()), read_file(folder_ / "three" / each.path().filename())) << each.path();
    ++num_files;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "three"), {}), static_cast<int64_t>(num_files));
  EXPECT_GT(num_files, 6u);
  for (const int64_t bytes : worked) EXPECT_GT(bytes, 0);
}

TEST_F(HfFolderTest, AMemberThatCannotReadCostsAllTheExportAndLeavesNothing) {
  int told = 0;
  std::mutex mutex;
  on_thread_team(3, [&](const Team& team) {
    const auto read = [&](const ParameterSpec&, int64_t, std::span<float>) {
      if (team.index == 2) throw IoError("the disk is gone", EIO);
    };
    try {
      export_hf_folder(path_, small_model(true), read, {.max_shard_bytes = 500}, team);
    } catch (const IoError& error) {
      const std::lock_guard lock(mutex);
      told += std::string(error.what()) == "the disk is gone";
    }
  });
  EXPECT_EQ(told, 3);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(HfFolderTest, WhatIsExportedIsImportedBitForBit) {
  for (const bool moe : {false, true}) {
    for (const uint64_t shard_bytes : {uint64_t{1} << 40, uint64_t{500}}) {
      fs::remove_all(path_);
      const auto config = small_model(moe, moe);
      write(config, {.dtype = Dtype::kF32, .max_shard_bytes = shard_bytes});
      EXPECT_EQ(fs::exists(path_ / kHfIndexName), shard_bytes == 500);
      const auto folder = HfFolder::open(path_);
      EXPECT_EQ(folder.model(), config.model);
      ASSERT_EQ(folder.parameters().size(), make_inventory(config.model).size());
      for (const auto& parameter : folder.parameters()) {
        const auto expected = values_of(parameter);
        std::vector<float> read(expected.size());
        folder.read(parameter.name, read.data());
        ASSERT_EQ(std::memcmp(read.data(), expected.data(), read.size() * 4), 0) << parameter.name;
        const size_t first = read.size() / 3, count = read.size() / 2;  // across experts
        std::vector<float> part(count);
        folder.read(parameter.name, static_cast<int64_t>(first), part);
        ASSERT_EQ(std::memcmp(part.data(), expected.data() + first, count * 4), 0) << parameter.name;
      }
    }
  }
}

TEST_F(HfFolderTest, Bf16RoundsToNearest) {
  write(small_model(true));
  const auto folder = HfFolder::open(path_);
  for (const auto& parameter : folder.parameters()) {
    const auto expected = values_of(parameter);
    std::vector<float> read(expected.size());
    folder.read(parameter.name, read.data());
    for (size_t i = 0; i < read.size(); ++i) ASSERT_EQ(read[i], bf16_to_float(bf16_from_float(expected[i])));
  }
}

TEST_F(HfFolderTest, ExpertsLieOneByOneUnderTransformersNames) {
  write(small_model(true), {.dtype = Dtype::kF32});
  const auto file = SafetensorsFile::open(path_ / kHfWeightsName);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.entry("model.layers.1.mlp.experts.2.gate_proj.weight").shape, (Shape{6, 8}));
  EXPECT_EQ(file.entry("model.layers.1.mlp.experts.2.down_proj.weight").shape, (Shape{8, 6}));
  for (const auto& parameter : make_inventory(small_model(true).model)) {
    if (parameter.name != "model.layers.1.mlp.experts.down_proj.weight") continue;
    const auto stacked = values_of(parameter);
    std::vector<float> last(48);
    file.read_floats("model.layers.1.mlp.experts.2.down_proj.weight", 0, last);
    EXPECT_EQ(last, std::vector<float>(stacked.begin() + 96, stacked.end()));
    return;
  }
  FAIL();
}

TEST_F(HfFolderTest, WhatTheFamilyHasNotIsRefusedByNameAndNothingIsLeft) {
  const auto refusal = [&](auto change) {
    HfConfig config = small_model(true);
    change(config);
    const std::string message = message_of<CheckpointError>([&] { write(config); });
    EXPECT_FALSE(fs::exists(path_));
    EXPECT_SAYS(message, "OlmoeForCausalLM");
    return message;
  };
  EXPECT_SAYS(refusal([](HfConfig& c) { c.model.num_shared_experts = 2; }), "model.num_shared_experts (2)");
  EXPECT_SAYS(refusal([](HfConfig& c) { c.model.router_score = "sigmoid"; }), "model.router_score (sigmoid)");
  EXPECT_SAYS(refusal([](HfConfig& c) { c.model.routed_scaling_factor = 2.5; }), "model.routed_scaling_factor (2.5)");
  EXPECT_SAYS(refusal([](HfConfig& c) { c.router_bias = {{0, 0, 0}, {0, 0.5f, 0}}; }), "a router bias");
  HfConfig balanced = small_model(true);
  balanced.router_bias = {{0, 0, 0}, {0, 0, 0}};  // it chooses the same as none
  write(balanced);
}

TEST_F(HfFolderTest, FusedExpertsAreRead) {
  const auto config = small_model(true);
  write(config, {.dtype = Dtype::kF32});
  // The same weights with gate and up fused, as in some folders.
  const auto plain = HfFolder::open(path_);
  std::vector<TensorSpec> specs;
  std::vector<std::vector<float>> data;
  const auto read = [&](const std::string& name) {
    for (const auto& parameter : plain.parameters()) {
      if (parameter.name == name) return values_of(parameter);
    }
    return std::vector<float>();
  };
  for (const auto& parameter : plain.parameters()) {
    if (parameter.role == Role::kExpertUp) continue;
    auto values = values_of(parameter);
    if (parameter.role == Role::kExpertDown) {
      specs.push_back(
          {"model.layers." + std::to_string(parameter.layer) + ".mlp.experts.down_proj", Dtype::kF32, {3, 8, 6}});
    } else if (parameter.role == Role::kExpertGate) {
      const auto prefix = "model.layers." + std::to_string(parameter.layer) + ".mlp.experts.";
      const auto up = read(prefix + "up_proj.weight");
      std::vector<float> fused;
      for (int e = 0; e < 3; ++e) {
        fused.insert(fused.end(), values.begin() + e * 48, values.begin() + (e + 1) * 48);
        fused.insert(fused.end(), up.begin() + e * 48, up.begin() + (e + 1) * 48);
      }
      values = fused;
      specs.push_back({prefix + "gate_up_proj", Dtype::kF32, {3, 12, 8}});
    } else {
      specs.push_back({parameter.name, Dtype::kF32, parameter.shape});
    }
    data.push_back(values);
  }
  {
    SafetensorsWriter writer(path_ / kHfWeightsName, specs);
    for (const auto& values : data) writer.append_floats(Dtype::kF32, values);
    writer.commit();
  }
  const auto fused = HfFolder::open(path_);
  for (const auto& parameter : fused.parameters()) {
    std::vector<float> values(static_cast<size_t>(parameter.num_elements()));
    fused.read(parameter.name, values.data());
    ASSERT_EQ(values, values_of(parameter)) << parameter.name;
  }
}

TEST_F(HfFolderTest, MissingUnexpectedAndMisshapenTensorsAreNamedTogether) {
  write(small_model(true), {.dtype = Dtype::kF32});
  rewrite([](TensorSpec& spec) {
    if (spec.name == "model.layers.0.mlp.gate.weight") spec.shape = {8, 3};
    if (spec.name == "model.norm.weight") spec.name = "model.normal.weight";
    return spec.name != "model.layers.1.mlp.experts.1.up_proj.weight";
  });
  const auto message = open_refusal();
  EXPECT_SAYS(message, "model.layers.0.mlp.gate.weight has shape [8, 3], expected [3, 8]");
  EXPECT_SAYS(message, "model.layers.1.mlp.experts.1.up_proj.weight is missing");
  EXPECT_SAYS(message, "model.norm.weight is missing");
  EXPECT_SAYS(message, "model.normal.weight is unexpected");
}

TEST_F(HfFolderTest, IntegerWeightsAreRefused) {
  write(small_model(false), {.dtype = Dtype::kF32});
  rewrite([](TensorSpec& spec) {
    if (spec.name == "lm_head.weight") spec.dtype = Dtype::kI32;
    return true;
  });
  EXPECT_SAYS(open_refusal(), "lm_head.weight is I32, expected F32, BF16, F16 or F64");
}

TEST_F(HfFolderTest, ATiedModelIsWrittenWithoutAnOutputLayer) {
  write(small_model(false, true), {.dtype = Dtype::kF32});
  EXPECT_FALSE(SafetensorsFile::open(path_ / kHfWeightsName).tensors().contains("lm_head.weight"));
}

// As in transformers 5.24: the tensors decide.
class TiedFolder : public HfFolderTest {
 protected:
  void tie() {
    auto json = Json::parse(read_file(path_ / kHfConfigName));
    json["tie_word_embeddings"] = true;
    write_raw(path_ / kHfConfigName, json.dump());
  }
  std::vector<float> read(const HfFolder& folder, const std::string& name) const {
    std::vector<float> values(11 * 8);
    folder.read(name, values.data());
    return values;
  }
  const std::vector<float> embedding_ = values_of({"model.embed_tokens.weight", {11, 8}, Role::kEmbedding, -1, {}});
  const std::vector<float> head_ = values_of({"lm_head.weight", {11, 8}, Role::kOutput, -1, {}});
};

TEST_F(TiedFolder, AnOutputLayerWithOtherValuesIsOneOfItsOwn) {
  write(small_model(false), {.dtype = Dtype::kF32});
  tie();
  const HfFolder folder = HfFolder::open(path_);
  EXPECT_FALSE(folder.model().tie_word_embeddings);
  EXPECT_EQ(read(folder, "lm_head.weight"), head_);
  EXPECT_EQ(read(folder, "model.embed_tokens.weight"), embedding_);
}

TEST_F(TiedFolder, AnOutputLayerThatEqualsTheEmbeddingIsTheEmbedding) {
  export_hf_folder(path_, small_model(false),
                   [this](const ParameterSpec& parameter, int64_t first, std::span<float> out) {
                     const auto& values = parameter.name == "lm_head.weight" ? embedding_ : values_of(parameter);
                     std::copy_n(values.begin() + first, out.size(), out.begin());
                   },
                   {.dtype = Dtype::kF32});
  tie();
  EXPECT_TRUE(HfFolder::open(path_).model().tie_word_embeddings);
}

TEST_F(TiedFolder, AnOutputLayerAloneIsTheEmbeddingToo) {
  write(small_model(false), {.dtype = Dtype::kF32});
  rewrite([](TensorSpec& spec) { return spec.name != "model.embed_tokens.weight"; });
  EXPECT_SAYS(open_refusal(), "model.embed_tokens.weight is missing");
  tie();
  const HfFolder folder = HfFolder::open(path_);
  EXPECT_TRUE(folder.model().tie_word_embeddings);
  EXPECT_EQ(read(folder, "model.embed_tokens.weight"), head_);
}

TEST_F(TiedFolder, AnIndexMayListAnOutputLayerThatNobodyStored) {
  write(small_model(false, true), {.dtype = Dtype::kF32, .max_shard_bytes = 600});
  auto index = Json::parse(read_file(path_ / kHfIndexName));
  const std::string other = index["weight_map"]["model.embed_tokens.weight"];
  for (const std::string& file : {other, std::string("gone.safetensors")}) {
    index["weight_map"]["lm_head.weight"] = file;
    write_raw(path_ / kHfIndexName, index.dump());
    EXPECT_TRUE(HfFolder::open(path_).model().tie_word_embeddings) << file;
  }
}

TEST_F(HfFolderTest, WhatTheFolderTellsAboutTokensIsWrittenBack) {
  HfConfig config = small_model(false);
  config.bos_token_id = 1;
  config.pad_token_id = 0;
  config.eos_token_ids = {2, 5};
  write(config);
  EXPECT_EQ(read_hf_config(path_ / kHfConfigName).eos_token_ids, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(Json::parse(read_file(path_ / kHfGenerationName))["eos_token_id"], Json({2, 5}));

  fs::remove_all(path_);
  config.generation = parse_hf_generation(R"({"eos_token_id": [2, 7], "temperature": 0.6, "do_sample": true})", "g");
  EXPECT_EQ(config.generation.settings, (std::vector<std::string>{"do_sample = true", "temperature = 0.6"}));
  write(config);
  EXPECT_EQ(read_file(path_ / kHfGenerationName), config.generation.text) << "as it was";

  fs::remove_all(path_);
  config.eos_token_ids = {3};  // training data end with another token
  write(config);
  const auto written = Json::parse(read_file(path_ / kHfGenerationName));
  EXPECT_EQ(written["eos_token_id"], 3);
  EXPECT_EQ(written["temperature"], 0.6);
}

TEST_F(HfFolderTest, ARunKeepsWhatTheFolderOfItsModelTells) {
  HfConfig config = small_model(false);
  config.bos_token_id = 1;
  config.pad_token_id = 0;
  config.eos_token_ids = {2, 5};
  config.generation.text = R"({"top_p":0.9})";
  keep_hf_settings(config, folder_);
  HfConfig of_run;
  of_run.eos_token_ids = {5};
  add_kept_settings(folder_, of_run);
  EXPECT_EQ(of_run.bos_token_id, 1);
  EXPECT_EQ(of_run.pad_token_id, 0);
  EXPECT_EQ(of_run.eos_token_ids, config.eos_token_ids);
  EXPECT_EQ(of_run.generation.text, config.generation.text);
  of_run.eos_token_ids = {7};
  add_kept_settings(folder_, of_run);
  EXPECT_EQ(of_run.eos_token_ids, std::vector<int64_t>{7}) << "its own end is not among them";
}

TEST_F(HfFolderTest, AnIndexThatLiesIsRefused) {
  write(small_model(false), {.max_shard_bytes = 300});
  const auto index = read_file(path_ / kHfIndexName);
  const auto with = [&](const std::function<void(Json&)>& change) {
    auto json = Json::parse(index);
    change(json["weight_map"]);
    write_raw(path_ / kHfIndexName, json.dump());
    return open_refusal();
  };
  const std::string first = Json::parse(index)["weight_map"]["model.embed_tokens.weight"];
  EXPECT_SAYS(with([&](Json& map) { map["lm_head.weight"] = first; }), "no tensor \"lm_head.weight\"");
  EXPECT_SAYS(with([](Json& map) { map["lm_head.weight"] = "gone.safetensors"; }),
              "the file gone.safetensors is missing");
  EXPECT_SAYS(with([](Json& map) { map["lm_head.weight"] = "../x.safetensors"; }), "not the name of a file in this");
  EXPECT_SAYS(with([](Json& map) { map["lm_head.weight"] = 5; }), "must be a file's name");
  EXPECT_SAYS(with([](Json& map) { map = 5; }), "weight_map must be an object");
  write_raw(path_ / kHfIndexName, index);
  const auto shard = path_ / first;
  const auto bytes = read_file(shard);
  write_raw(shard, bytes.substr(0, bytes.size() - 4));
  EXPECT_SAYS(open_refusal(), first);
}

TEST_F(HfFolderTest, AFolderWithoutConfigOrWeightsSaysSo) {
  EXPECT_SAYS(open_refusal(), "it has no config.json");
  write(small_model(false));
  fs::rename(path_ / kHfWeightsName, path_ / "pytorch_model.bin");
  EXPECT_SAYS(open_refusal(), "has neither model.safetensors nor model.safetensors.index.json; pytorch_model.bin");
}

TEST_F(HfFolderTest, TheTokenizerComesAlongWithTheNameOfItsEndOfText) {
  write_raw(folder_ / "tokenizer.json", kTokenizer);
  write(small_model(false), {.tokenizer = folder_ / "tokenizer.json"});
  EXPECT_EQ(read_file(path_ / "tokenizer.json"), kTokenizer);
  const auto config = Json::parse(read_file(path_ / "tokenizer_config.json"));
  EXPECT_EQ(config["eos_token"], "<|endoftext|>");
  EXPECT_EQ(Json::parse(read_file(path_ / "generation_config.json"))["eos_token_id"], 2);

  fs::remove_all(path_);
  write_raw(folder_ / "tokenizer_config.json", "{\"kept\": true}");
  write(small_model(false), {.tokenizer = folder_ / "tokenizer.json"});
  EXPECT_EQ(read_file(path_ / "tokenizer_config.json"), "{\"kept\": true}");
}

TEST_F(HfFolderTest, ATokenizerOfAnotherModelIsRefusedAndNothingIsLeft) {
  write_raw(folder_ / "tokenizer.json", kTokenizer);
  auto config = small_model(false);
  config.eos_token_ids = {7};
  const auto refusal = [&] {
    return message_of<CheckpointError>([&] { write(config, {.tokenizer = folder_ / "tokenizer.json"}); });
  };
  EXPECT_SAYS(refusal(), "no token with id 7, the model's eos_token");
  config.eos_token_ids = {1};
  config.model.vocab_size = 2;
  EXPECT_SAYS(refusal(), "token \"<|endoftext|>\" has id 2, beyond the model's vocab_size 2");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(HfFolderTest, AFolderThatIsThereIsOverwrittenOnlyWhenAskedAndOnlyWhole) {
  const auto refusal = [&](const HfExportOptions& options) {
    return message_of<CheckpointError>([&] { write(small_model(true), options); });
  };
  fs::create_directories(path_);
  write(small_model(false));  // an empty folder may be filled
  EXPECT_SAYS(refusal({}), "is there already");
  write_raw(folder_ / "tokenizer.json", "{}");
  refusal({.tokenizer = folder_ / "tokenizer.json", .overwrite = true});
  EXPECT_EQ(HfFolder::open(path_).model().family, "olmo");
  write(small_model(true), {.extra_files = {{"athanor.json", "{}"}}, .overwrite = true});
  EXPECT_EQ(read_file(path_ / "athanor.json"), "{}");
  EXPECT_EQ(HfFolder::open(path_).model().family, "olmoe");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);  // the model and the tokenizer
  fs::remove(path_ / kHfConfigName);
  EXPECT_SAYS(refusal({.overwrite = true}), "will not be overwritten");
}

TEST_F(HfFolderTest, AKilledExportLeavesNoFolder) {
  ::setenv("ATHANOR_FAULT", "export.before_commit:kill", 1);
  EXPECT_EXIT(write(small_model(false)), testing::KilledBySignal(SIGKILL), "");
  ::unsetenv("ATHANOR_FAULT");
  EXPECT_FALSE(fs::exists(path_));
}

}  // namespace
}  // namespace athanor::hf_folder_test
