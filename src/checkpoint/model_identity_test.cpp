#include "checkpoint/model_identity.h"

#include "base/error.h"
#include "base/testing/folder_test.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/hf_layout.h"
#include "config/toml_reader.h"

namespace athanor::model_identity_test {
namespace {

using Lines = std::vector<std::string>;

TEST(ModelChanges, WhatIsAllowedIsNamedAndNothingElseMayDiffer) {
  ModelConfig model;
  const auto stored = model_identity(model);
  model.rope_theta = 5e5;
  model.rope_scaling.rope_type = "linear";
  model.rope_scaling.factor = 2;
  EXPECT_EQ(check_same_model(stored, model, "run/", {"rope_theta", "rope_scaling"}),
            (Lines{"rope_scaling.factor is 1.0 there, 2.0 here",
                   "rope_scaling.rope_type is \"default\" there, \"linear\" here",
                   "rope_theta is 10000.0 there, 500000.0 here"}));
  const auto message = message_of<CheckpointError>([&] { check_same_model(stored, model, "run/", {"rope_scaling"}); });
  EXPECT_SAYS(message, "rope_theta is 10000.0 there, 500000.0 here");
  EXPECT_SAYS(message, "set checkpoint.allow_model_change to [\"rope_theta\"]");
  model.hidden_size = 512;
  EXPECT_SAYS(message_of<CheckpointError>([&] {
                check_same_model(stored, model, "run/", {"rope_theta", "rope_scaling"});
              }),
              "make the model equal");
}

TEST(ModelChanges, TheBaseOfLayersWithAWindowIsTheOneThatTheyRotateBy) {
  ModelConfig model;
  model.family = "gemma3_text";
  model.sliding_window = 7;
  model.rope_theta = 1e4;
  const auto stored = model_identity(model);
  model.window_rope_theta = 1e4;
  EXPECT_EQ(model_identity(model), stored) << "a base that is written out";
  model.rope_theta = 1e6;
  EXPECT_EQ(check_same_model(stored, model, "run/", {"rope_theta"}).size(), 1u) << "the other layers keep theirs";
  model.window_rope_theta = 0;
  EXPECT_EQ(check_same_model(stored, model, "run/", {"rope_theta"}).size(), 2u) << "both change";
  model.sliding_window = 0;
  const auto without = model_identity(model);
  model.window_rope_theta = 50;
  EXPECT_EQ(model_identity(model), without) << "nothing reads it without a window";
}

TEST(ModelChanges, AWidthOfSharedExpertsIsOneHoweverItIsGiven) {
  ModelConfig model;
  model.family = "qwen2_moe";
  model.num_experts = 4, model.num_experts_per_tok = 2;
  model.moe_intermediate_size = 24, model.num_shared_experts = 2;
  const auto counted = model_identity(model);
  model.num_shared_experts = 1, model.shared_expert_intermediate_size = 48;
  EXPECT_EQ(model_identity(model), counted);
  model.shared_expert_intermediate_size = 50;
  const auto odd = model_identity(model);
  model.num_shared_experts = 3;
  EXPECT_EQ(model_identity(model), odd);
}

TEST(ModelChanges, AVocabularyGrowsAndNeverShrinks) {
  ModelConfig model;
  const auto stored = model_identity(model);
  model.vocab_size += 64;
  EXPECT_EQ(check_same_model(stored, model, "run/", {"vocab_size"}).size(), 1u);
  model.vocab_size -= 65;
  EXPECT_SAYS(message_of<CheckpointError>([&] { check_same_model(stored, model, "run/", {"vocab_size"}); }),
              "vocab_size is");
}

TEST(ModelChanges, LearnedPositionsAreATableThatGrowsAndRotaryOnesAreNone) {
  ModelConfig rotary;
  const auto stored_rotary = model_identity(rotary);
  rotary.max_position_embeddings = 7;
  EXPECT_TRUE(check_same_model(stored_rotary, rotary, "run/", {}).empty());
  ModelConfig learned;
  learned.family = "gpt2";
  learned.max_position_embeddings = 64;
  const auto stored = model_identity(learned);
  const auto with = [&](int64_t positions, const Lines& allowed) {
    learned.max_position_embeddings = positions;
    return check_same_model(stored, learned, "run/", allowed);
  };
  EXPECT_SAYS(message_of<CheckpointError>([&] { with(128, {}); }), "max_position_embeddings is 64 there, 128 here");
  EXPECT_EQ(with(128, {"max_position_embeddings"}).size(), 1u);
  EXPECT_SAYS(message_of<CheckpointError>([&] { with(40, {"max_position_embeddings"}); }),
              "max_position_embeddings is");
}

class ModelFrom : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    HfConfig there;
    there.model.family = "llama";
    there.model.hidden_size = 64;
    there.model.vocab_size = 300;
    there.model.num_key_value_heads = 8;
    write_raw(folder_ / kHfConfigName, hf_config_text(there, Dtype::kF32));
  }
  RunConfig config(const std::string& beside, const std::string& rest = "") const {
    return parse_run_config("[model]\nfrom = \"" + folder_.string() + "\"\n" + beside + rest, "run.toml");
  }
};

TEST_F(ModelFrom, TheFoldersConfigIsTheModelAndWhatDiffersBesideItIsSaid) {
  RunConfig run = config("hidden_size = 64\nnum_hidden_layers = 7\nrope_theta = 5.0\n");
  EXPECT_EQ(resolve_model_from(run).size(), 2u);
  EXPECT_EQ(run.model.family, "llama");
  EXPECT_EQ(run.model.hidden_size, 64);
  EXPECT_EQ(run.model.num_hidden_layers, ModelConfig{}.num_hidden_layers);
  EXPECT_EQ(run.model.rope_theta, 10000);
  EXPECT_EQ(run.model.from, folder_.string());
}

TEST_F(ModelFrom, AChangeThatIsAskedForIsTaken) {
  RunConfig run = config("rope_theta = 5.0\nvocab_size = 320\nmax_position_embeddings = 4096\n",
                         "[checkpoint]\nallow_model_change = [\"rope_theta\", \"vocab_size\"]\n");
  const auto said = resolve_model_from(run);
  ASSERT_EQ(said.size(), 3u);
  EXPECT_SAYS(said[0], "not used");
  EXPECT_SAYS(said[0], "allow_model_change = [\"max_position_embeddings\"]");
  EXPECT_SAYS(said[1], "model.rope_theta is 10000.0 in ");
  EXPECT_EQ(run.model.rope_theta, 5);
  EXPECT_EQ(run.model.vocab_size, 320);
  RunConfig less = config("vocab_size = 280\n", "[checkpoint]\nallow_model_change = [\"vocab_size\"]\n");
  EXPECT_SAYS(message_of<CheckpointError>([&] { resolve_model_from(less); }), "vocab_size is 300 there, 280 here");
}

TEST_F(ModelFrom, AFolderThatIsNotThereOrNoModelIsRefused) {
  RunConfig run = config("");
  run.model.from = (folder_ / "nowhere").string();
  EXPECT_SAYS(message_of<CheckpointError>([&] { resolve_model_from(run); }), "there is no folder");
  std::filesystem::remove(folder_ / kHfConfigName);
  run.model.from = folder_.string();
  EXPECT_SAYS(message_of<CheckpointError>([&] { resolve_model_from(run); }), "is not a folder of transformers");
}

}  // namespace
}  // namespace athanor::model_identity_test
