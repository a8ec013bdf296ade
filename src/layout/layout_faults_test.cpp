#include "layout/layout_faults.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "config/checks.h"
#include "config/toml_reader.h"
#include "layout/layout.h"

namespace athanor::layout_faults_test {
namespace {

RunConfig config_with(const std::vector<std::string>& overrides) {
  return parse_run_config("[model]\nfamily = \"olmoe\"\nnum_experts = 16\nnum_experts_per_tok = 4\n", "run.toml",
                          overrides);
}

std::string faults_of(const std::vector<std::string>& overrides, int world_size) {
  return join(find_layout_faults(config_with(overrides), world_size), "\n");
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(LayoutFaults, WhatFitsHasNone) {
  EXPECT_EQ(faults_of({}, 1), "");
  EXPECT_EQ(faults_of({"parallelism.expert_parallel_degree=4"}, 4), "");
  EXPECT_EQ(faults_of({"parallelism.data_parallel_replicate_degree=2", "parallelism.expert_parallel_degree=4"}, 4), "");
}

TEST(LayoutFaults, AModelThatContradictsItselfIsNotCutAmongTensorRanks) {
  auto config = config_with({"parallelism.tensor_parallel_degree=2", "train.global_batch_size=4"});
  config.model.num_attention_heads = 0;
  EXPECT_EQ(join(find_layout_faults(config, 2), "\n"), "");
}

TEST(LayoutFaults, AWorldOfAnotherSizeIsToldWithTheProduct) {
  const auto text = faults_of({"parallelism.data_parallel_shard_degree=3", "train.global_batch_size=12"}, 8);
  EXPECT_EQ(text,
            "this job has 8 ranks, and the degrees need 3 (pipeline 1 × replicate 1 × shard 3 × tensor 1): start 3, or "
            "change a degree (data_parallel_shard_degree -1 takes what the others leave)");
}

TEST(LayoutFaults, WhatIsLeftMustBeWhole) {
  EXPECT_HAS(faults_of({"parallelism.data_parallel_replicate_degree=3"}, 8),
             "pipeline 1 × replicate 3 × tensor 1 = 3 does not divide the 8 ranks of this job: start a multiple of 3");
}

TEST(LayoutFaults, AllAreToldAtOnce) {
  auto config = config_with({"parallelism.data_parallel_replicate_degree=2", "parallelism.data_parallel_shard_degree=3",
                             "topology.ranks_per_node=5", "train.global_batch_size=16", "train.micro_batch_size=4"});
  config.parallelism.expert_parallel_degree = 5;
  config.parallelism.mapping = std::vector<std::string>{"pipeline", "pipeline", "shard", "expert", "tensr"};
  config.moe.balance = "capacity";
  config.moe.balance_group = 16;
  const auto text = join(find_layout_faults(config, 8), "\n");
  EXPECT_HAS(text, "this job has 8 ranks, and the degrees need 6");
  EXPECT_HAS(text, "parallelism.expert_parallel_degree (5) must divide model.num_experts (16)");
  EXPECT_HAS(text,
             "parallelism.expert_parallel_degree (5) must divide the 6 data ranks (replicate 2 × shard 3): set it "
             "to one of 1, 2");
  EXPECT_HAS(
      text,
      "train.global_batch_size (16) is not a multiple of 6 data ranks × train.micro_batch_size (4) = 24: set it to "
      "24");
  EXPECT_HAS(text,
             "moe.balance_group (16) spans 4 data ranks of train.micro_batch_size (4) each, which does not divide "
             "the 6 data ranks");
  EXPECT_HAS(text, "parallelism.mapping: \"tensr\" is not an axis (did you mean \"tensor\"?)");
  EXPECT_HAS(text, "parallelism.mapping lacks \"replicate\"");
  EXPECT_HAS(text, "parallelism.mapping lacks \"tensor\"");
  EXPECT_HAS(text, "parallelism.mapping has \"pipeline\" 2 times");
  EXPECT_HAS(text, "topology.ranks_per_node (5) must divide the 8 ranks");
  EXPECT_EQ(text.find("context\""), std::string::npos);  // may be left out
  EXPECT_THROW(Layout(config, 8), ConfigError);
}

TEST(LayoutFaults, ImpossibleNumbersOfAProgramAreRefusedNotComputedWith) {
  using Number = int64_t& (*)(RunConfig&);
  const Number numbers[] = {
      [](RunConfig& c) -> int64_t& { return c.parallelism.data_parallel_replicate_degree; },
      [](RunConfig& c) -> int64_t& { return c.parallelism.data_parallel_shard_degree; },
      [](RunConfig& c) -> int64_t& { return c.parallelism.expert_parallel_degree; },
      [](RunConfig& c) -> int64_t& { return c.parallelism.tensor_parallel_degree; },
      [](RunConfig& c) -> int64_t& { return c.parallelism.pipeline_parallel_degree; },
      [](RunConfig& c) -> int64_t& { return c.parallelism.virtual_stages; },
      [](RunConfig& c) -> int64_t& { return c.train.micro_batch_size; },
      [](RunConfig& c) -> int64_t& { return c.train.global_batch_size; },
      [](RunConfig& c) -> int64_t& { return c.moe.balance_group; },
  };
  for (const Number& number : numbers) {
    for (const int64_t impossible : {int64_t{0}, int64_t{-2}, std::numeric_limits<int64_t>::min()}) {
      for (const int ranks : {1, 4}) {
        RunConfig config = config_with({"moe.balance=capacity"});
        number(config) = impossible;
        EXPECT_THROW(Layout(config, ranks), ConfigError) << &number - numbers << " " << impossible;
      }
    }
  }
  EXPECT_THROW(Layout(config_with({}), 0), ConfigError);
}

TEST(LayoutFaults, TheReaderTellsThemTogetherWithItsOwn) {
  try {
    parse_run_config("[model]\nnum_experts = 16\nnum_experts_per_tok = 4\nhidden_size = 100\n", "run.toml",
                     {"parallelism.expert_parallel_degree=3", "parallelism.data_parallel_shard_degree=3"},
                     [](const RunConfig& config) { return find_layout_faults(config, 4); });
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_HAS(text, "must divide model.hidden_size (100)");
    EXPECT_HAS(text, "run.toml: this job has 4 ranks, and the degrees need 3");
    EXPECT_HAS(text, "not a multiple of 3 data ranks");
    const std::string once = "expert_parallel_degree (3) must divide model.num_experts (16)";
    EXPECT_HAS(text, once);
    EXPECT_EQ(text.find(once), text.rfind(once)) << text;
  }
}

TEST(LayoutFaults, ADenseModelHasNoExpertsToShare) {
  RunConfig config;
  config.parallelism.expert_parallel_degree = 2;
  EXPECT_HAS(join(find_layout_faults(config, 2)),
             "parallelism.expert_parallel_degree (2): the model has no experts to share; set it to 1");
  config.model.from = "a folder";  // not read yet
  EXPECT_EQ(find_layout_faults(config, 2), std::vector<std::string>{});
  config.model.written.resolved = true;  // read, and dense
  EXPECT_EQ(find_layout_faults(config, 2).size(), 1u);
}

TEST(LayoutFaults, EachStageIsLookedAt) {
  const auto config = parse_run_config(
      "[model]\nfamily = \"olmo\"\n[optimizer]\nwarmup_steps = 1\n[[train.stages]]\nsteps = 1\n[[train.stages]]\nname "
      "= \"long\"\nsteps = 1\nglobal_batch_size = 6\n"
      "micro_batch_size = 3\n",
      "run.toml");
  EXPECT_EQ(find_layout_faults(config, 4),
            std::vector<std::string>{
                "long: train.global_batch_size (6) is not a multiple of 4 data ranks: set it to 4 or 8"});
}

TEST(LayoutFaults, EachSizeOfABatchRampIsLookedAt) {
  const std::vector<std::string> ramp{"data.seq_len=8", "train.global_batch_size=16", "train.micro_batch_size=2",
                                      "train.batch_ramp=[{sequences = 4, until_tokens = 1e3}]"};
  EXPECT_EQ(faults_of(ramp, 2), "");
  EXPECT_EQ(faults_of(ramp, 4),
            "batch of 4: train.batch_ramp[0].sequences (4) is not a multiple of 4 data ranks × train.micro_batch_size "
            "(2) = 8: set it to 8");
  const std::string noise =
      faults_of({ramp[0], ramp[1], "train.micro_batch_size=4", ramp[3], "metrics.noise_scale_interval=1"}, 1);
  EXPECT_HAS(noise, "batch of 4: metrics.noise_scale_interval (1)");
  EXPECT_HAS(noise, "(4) to half of train.batch_ramp[0].sequences (4) or less");
}

TEST(LayoutFaults, TheNoiseScaleNeedsTwoPartsOfABatch) {
  const std::vector<std::string> whole{"metrics.noise_scale_interval=1", "train.global_batch_size=4",
                                       "train.micro_batch_size=4"};
  EXPECT_HAS(faults_of(whole, 1), "on one data rank there is one part: set train.micro_batch_size (4) to half of");
  EXPECT_EQ(faults_of({whole[0], "train.global_batch_size=8", whole[2]}, 2), "");
  EXPECT_EQ(faults_of({whole[0], whole[1], "train.micro_batch_size=2"}, 1), "");
  EXPECT_HAS(faults_of({whole[0], "parallelism.pipeline_parallel_degree=2", "parallelism.virtual_stages=2",
                        "parallelism.pipeline_schedule=interleaved_1f1b"},
                       2),
             "metrics.noise_scale_interval (1) with parallelism.virtual_stages (2) needs 2 data ranks or more");
}

TEST(LayoutFaults, BalanceGroupsSpanTheSameRanksInEachStage) {
  auto config = parse_run_config(
      "[model]\nfamily = \"olmo\"\n[optimizer]\nwarmup_steps = 1\n[[train.stages]]\nsteps = 1\nmicro_batch_size = "
      "2\n[[train.stages]]\nname = \"long\"\nsteps = 1\n"
      "micro_batch_size = 1\n",
      "run.toml");
  config.moe.balance = "capacity";
  config.moe.balance_group = 2;
  EXPECT_HAS(join(find_layout_faults(config, 2)),
             "long: moe.balance_group (2) spans 2 data ranks of train.micro_batch_size (1), and 1 in stage 1");
}

TEST(LayoutFaults, AJobWithinANodeNeedNotFillIt) {
  EXPECT_EQ(faults_of({"topology.ranks_per_node=12"}, 1), "");
  EXPECT_EQ(faults_of({"topology.ranks_per_node=12", "train.global_batch_size=96"}, 24), "");
}

TEST(LayoutFaults, AbsurdDegreesOverflowNowhere) {
  RunConfig config;
  auto& p = config.parallelism;
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  p.data_parallel_replicate_degree = p.tensor_parallel_degree = p.pipeline_parallel_degree = kHuge;
  EXPECT_FALSE(find_layout_faults(config, 8).empty());
  p.data_parallel_shard_degree = kHuge;
  p.expert_parallel_degree = kHuge - 1;
  EXPECT_FALSE(find_layout_faults(config, 8).empty());
}

TEST(LayoutFaults, TensorAndPipelineRanksCutWhatDivides) {
  EXPECT_EQ(faults_of({"parallelism.tensor_parallel_degree=4", "parallelism.pipeline_parallel_degree=2",
                       "parallelism.sequence_parallel=true", "data.seq_len=64"},
                      16),
            "");
  EXPECT_EQ(faults_of({"parallelism.pipeline_parallel_degree=2", "parallelism.virtual_stages=2",
                       "parallelism.pipeline_schedule=\"interleaved_1f1b\""},
                      4),
            "");
}

TEST(LayoutFaults, WhatTensorRanksCannotShareIsToldAtOnce) {
  const auto text = faults_of({"parallelism.tensor_parallel_degree=3", "model.num_key_value_heads=2",
                               "model.vocab_size=2", "parallelism.sequence_parallel=true", "data.seq_len=64"},
                              3);
  EXPECT_HAS(text,
             "tensor_parallel_degree (3) must divide model.num_attention_heads (8): no two ranks share a query head; "
             "set it to one of 1, 2, 4, 8");
  EXPECT_HAS(text, "tensor_parallel_degree (3) must divide model.num_key_value_heads (2), or be a multiple of it");
  EXPECT_HAS(text, "tensor_parallel_degree (3) must divide model.intermediate_size (128), of which each rank has a");
  EXPECT_HAS(text, "tensor_parallel_degree (3) is more than model.vocab_size (2)");
  EXPECT_HAS(text, "sequence_parallel: parallelism.tensor_parallel_degree (3) must divide data.seq_len (64)");
}

TEST(LayoutFaults, KeyAndValueHeadsMayBeFewerThanTensorRanksIfAllHaveOne) {
  EXPECT_EQ(faults_of({"parallelism.tensor_parallel_degree=8", "model.num_key_value_heads=2"}, 8), "");
  EXPECT_HAS(faults_of({"parallelism.tensor_parallel_degree=6", "model.num_attention_heads=12", "model.hidden_size=768",
                        "model.intermediate_size=192", "model.num_key_value_heads=4"},
                       6),
             "tensor_parallel_degree (6) must divide model.num_key_value_heads (4), or be a multiple of it");
}

TEST(LayoutFaults, EveryWidthThatTheModelHasIsLookedAt) {
  RunConfig config;
  config.model.family = "qwen3_moe";
  config.model.num_experts = 8;
  config.model.num_experts_per_tok = 2;
  config.model.moe_intermediate_size = 36;
  config.model.intermediate_size = 130;
  config.parallelism.tensor_parallel_degree = 8;
  auto text = join(find_layout_faults(config, 8), "\n");
  EXPECT_HAS(text, "must divide model.moe_intermediate_size (36), of which each rank has a part in experts");
  EXPECT_EQ(text.find("model.intermediate_size"), std::string::npos) << text;  // no dense layer
  config.model.mlp_only_layers = {1};
  text = join(find_layout_faults(config, 8), "\n");
  EXPECT_HAS(text, "must divide model.intermediate_size (130), of which each rank has a part in dense layers");
}

TEST(LayoutFaults, SequencesOfUnknownLengthAreLookedAtWhenItIsKnown) {
  const std::vector<std::string> shared = {"parallelism.tensor_parallel_degree=4",
                                           "parallelism.sequence_parallel=true"};
  auto config = config_with(shared);
  EXPECT_EQ(find_layout_faults(config, 4), std::vector<std::string>{});
  config.data.seq_len = 30;
  EXPECT_HAS(join(find_layout_faults(config, 4)), "must divide data.seq_len (30)");
  EXPECT_THROW(Layout(config, 4), ConfigError);
  config.parallelism.sequence_parallel = false;
  EXPECT_EQ(find_layout_faults(config, 4), std::vector<std::string>{});
}

TEST(LayoutFaults, SequenceParallelismOfOneRankIsHarmless) {
  EXPECT_EQ(faults_of({"parallelism.sequence_parallel=true", "data.seq_len=31"}, 1), "");
}

TEST(LayoutFaults, WhatAPipelineLacksIsToldAtOnce) {
  const auto text = faults_of(
      {"parallelism.pipeline_parallel_degree=3", "parallelism.virtual_stages=2", "parallelism.pipeline_split=[1, 2]",
       "parallelism.pipeline_schedule=\"interleaved_1f1b\"", "train.global_batch_size=2", "train.micro_batch_size=1"},
      3);
  EXPECT_HAS(text, "pipeline_parallel_degree (3) · virtual_stages (2) = 6 stages, and the model has 4 layers");
  EXPECT_HAS(text, "pipeline_split has 2 numbers for the 6 stages");
  EXPECT_HAS(text, "pipeline_split (1, 2) adds up to 3 layers, and the model has 4");
  EXPECT_HAS(text, "groups of 3, one for each pipeline rank, and there are 2");
}

TEST(LayoutFaults, VirtualStagesNeedAPipeline) {
  EXPECT_HAS(faults_of({"parallelism.virtual_stages=2", "parallelism.pipeline_schedule=\"interleaved_1f1b\""}, 1),
             "parallelism.virtual_stages (2)");
  EXPECT_EQ(faults_of({"parallelism.pipeline_schedule=\"interleaved_1f1b\""}, 1), "");  // nothing to schedule
}

TEST(LayoutFaults, WhatAllStagesLackIsSaidOnceAndWhatOneLacksNamesIt) {
  auto config = parse_run_config(
      "[model]\nfamily = \"olmo\"\n[optimizer]\nwarmup_steps = 1\n[[train.stages]]\nsteps = 1\n[[train.stages]]\nname "
      "= \"long\"\nsteps = 1\nglobal_batch_size = 8\nmicro_batch_size = 4\n",
      "run.toml");
  config.parallelism.pipeline_parallel_degree = 4;
  config.parallelism.pipeline_schedule = "interleaved_1f1b";
  config.model.num_hidden_layers = 12;
  const auto lines = find_layout_faults(config, 4);
  ASSERT_EQ(lines.size(), 2u) << join(lines, "\n");
  EXPECT_HAS(lines[0], "virtual_stages is 1");
  EXPECT_EQ(lines[0].find("long"), std::string::npos) << lines[0];
  EXPECT_HAS(lines[1], "groups of 4, one for each pipeline rank, and there are 2");
  EXPECT_EQ(lines[1].find("long: "), 0u) << lines[1];
}

TEST(LayoutFaults, AModelFromAFolderIsCutWhenItIsRead) {
  RunConfig config;
  config.model.from = "a folder";
  config.parallelism.tensor_parallel_degree = 16;
  config.parallelism.pipeline_parallel_degree = 5;
  config.parallelism.pipeline_split = {1, 2, 3, 4, 5};
  config.train.global_batch_size = 8;
  config.train.micro_batch_size = 1;
  EXPECT_EQ(find_layout_faults(config, 80), std::vector<std::string>{});
  config.model.num_hidden_layers = 3;
  config.model.num_experts = 4, config.model.num_experts_per_tok = 2;
  config.model.written.resolved = true;  // as after reading the folder
  EXPECT_EQ(join(find_contradictions(config.model)), "");
  EXPECT_EQ(find_layout_faults(config, 80).size(), 3u) << join(find_layout_faults(config, 80), "\n");
}

}  // namespace
}  // namespace athanor::layout_faults_test
