// Tests what a small run keeps of a layout with tensor ranks and pipelines.
#include <gtest/gtest.h>

#include "verify/small_model.h"

namespace athanor::small_model_test {
namespace {

using Numbers = std::vector<int64_t>;

RunConfig large_dense() {
  RunConfig config;
  config.model.family = "qwen3";
  config.model.hidden_size = 4096;
  config.model.num_hidden_layers = 48;
  config.model.num_attention_heads = 32;
  config.model.num_key_value_heads = 8;
  config.model.attention_head_dim = 128;
  config.model.intermediate_size = 12288;
  config.model.vocab_size = 151936;
  config.data.seq_len = 2048;
  config.train.global_batch_size = 1024;
  config.train.micro_batch_size = 2;
  return config;
}

RunConfig with_tensor(int64_t degree, int64_t kv_heads) {
  RunConfig config = large_dense();
  config.parallelism.tensor_parallel_degree = degree;
  config.model.num_key_value_heads = kv_heads;
  return make_small_run(config, static_cast<int>(degree), {});
}

RunConfig with_pipeline(const std::string& schedule, int64_t ranks, int64_t virtual_stages, int64_t batch) {
  RunConfig config = large_dense();
  config.parallelism.pipeline_parallel_degree = ranks;
  config.parallelism.pipeline_schedule = schedule;
  config.parallelism.virtual_stages = virtual_stages;
  config.train.global_batch_size = batch;
  return make_small_run(config, static_cast<int>(ranks), {});
}

TEST(SmallModel, TensorRanksShareHeadsOrHoldCopiesAsInTheWholeModel) {
  for (const auto& [degree, kv_heads, heads, kv] : std::vector<std::array<int64_t, 4>>{
           {4, 8, 8, 4}, {8, 8, 16, 8}, {8, 2, 8, 2}, {4, 1, 4, 1}, {2, 8, 4, 2}, {2, 32, 4, 4}, {16, 4, 16, 4}}) {
    const ModelConfig small = with_tensor(degree, kv_heads).model;
    EXPECT_EQ(small.num_attention_heads, heads) << degree << " " << kv_heads;
    EXPECT_EQ(small.kv_heads(), kv) << degree << " " << kv_heads;
    EXPECT_EQ(small.intermediate_size % degree, 0);
  }
}

TEST(SmallModel, AVocabularyThatDoesNotDivideStaysSo) {
  RunConfig config = large_dense();
  config.parallelism.tensor_parallel_degree = 4;
  EXPECT_EQ(make_small_run(config, 4, {}).model.vocab_size, 96);
  config.model.vocab_size = 50257;
  EXPECT_EQ(make_small_run(config, 4, {}).model.vocab_size, 97);
  config.parallelism.tensor_parallel_degree = 1;
  EXPECT_EQ(make_small_run(config, 4, {}).model.vocab_size, 96);
}

TEST(SmallModel, TokensDivideWhereTensorRanksShareThem) {
  RunConfig config = large_dense();
  config.model.num_attention_heads = config.model.num_key_value_heads = 24;
  config.parallelism.tensor_parallel_degree = 6;
  config.data.seq_len = 2046;
  EXPECT_EQ(make_small_run(config, 6, {}).data.seq_len, 16);
  config.parallelism.sequence_parallel = true;
  EXPECT_EQ(make_small_run(config, 6, {}).data.seq_len, 18);
  config.data.seq_len = 0;  // as prepared
  EXPECT_EQ(make_small_run(config, 6, {.keep_size = true}).data.seq_len, 18);
}

TEST(SmallModel, AScheduleGetsTheMicrobatchesThatItNeeds) {
  EXPECT_EQ(Layout(with_pipeline("1f1b", 4, 1, 64), 4).microbatches(), 5);
  EXPECT_EQ(Layout(with_pipeline("1f1b", 4, 1, 8), 4).microbatches(), 4) << "as many as were asked for";
  EXPECT_EQ(Layout(with_pipeline("gpipe", 2, 1, 64), 2).microbatches(), 3);
  EXPECT_EQ(Layout(with_pipeline("interleaved_1f1b", 3, 2, 72), 3).microbatches(), 6);
  EXPECT_EQ(Layout(with_pipeline("interleaved_1f1b", 3, 2, 6), 3).microbatches(), 3);
}

TEST(SmallModel, StagesKeepTheirSharesOfTheLayers) {
  RunConfig config = large_dense();
  config.parallelism.pipeline_parallel_degree = 4;
  config.parallelism.pipeline_split = {12, 7, 6, 23};
  const RunConfig small = make_small_run(config, 4, {});
  EXPECT_EQ(small.parallelism.pipeline_split, (Numbers{2, 1, 1, 3}));
  EXPECT_EQ(small.model.num_hidden_layers, 7);
  config.parallelism.pipeline_split = {12, 12, 12, 12};
  EXPECT_EQ(make_small_run(config, 4, {}).model.num_hidden_layers, 4);
}

TEST(SmallModel, EachStageKeepsItsKindsOfLayers) {
  RunConfig config = large_dense();
  config.model.family = "qwen3_moe";
  config.model.num_experts = 16;
  config.model.num_experts_per_tok = 2;
  config.model.moe_intermediate_size = 768;
  config.model.mlp_only_layers = {0, 1, 13};
  config.parallelism.pipeline_parallel_degree = 4;
  config.parallelism.pipeline_split = {2, 12, 12, 22};
  const RunConfig small = make_small_run(config, 4, {});
  EXPECT_EQ(small.parallelism.pipeline_split, (Numbers{1, 4, 3, 3}));
  EXPECT_EQ(small.model.mlp_only_layers, (Numbers{0, 4})) << "layer 13 was the one of its stage that is dense";
}

TEST(SmallModel, AsManyLayersAsStagesStayAsTheyAre) {
  RunConfig config = large_dense();
  config.model.num_hidden_layers = 3;
  config.parallelism.pipeline_parallel_degree = 3;
  const RunConfig small = make_small_run(config, 3, {});
  EXPECT_EQ(small.model.num_hidden_layers, 3);
}

TEST(SmallModel, WithKeepDepthAllLayersStayAndAsManyBucketsFormAsInTheRun) {
  for (const double bucket_mb : {0.001, 25.0, 100.0, 400.0, 1e6}) {
    for (const bool pipeline : {false, true}) {
      RunConfig config = large_dense();
      config.model.num_hidden_layers = 160;
      config.parallelism.bucket_mb = bucket_mb;
      if (pipeline) config.parallelism.pipeline_parallel_degree = 2;
      const Layout layout(config, 4);
      const RunConfig small = make_small_run(config, 4, {.keep_depth = true});
      EXPECT_EQ(small.model.num_hidden_layers, 160);
      EXPECT_LE(small.model.hidden_size, 64);
      const int64_t whole = count_buckets(config, layout), here = count_buckets(small, Layout(small, 4));
      EXPECT_GE(here, whole) << bucket_mb;
      EXPECT_LE(static_cast<double>(here), 1.5 * static_cast<double>(whole)) << bucket_mb;
      if (bucket_mb == 0.001) {
        EXPECT_GE(whole, pipeline ? 800 : 1600) << "a bucket for each matrix";
      }
      if (bucket_mb == 1e6) {
        EXPECT_EQ(here, 1);
      }
    }
  }
}

TEST(SmallModel, OneRankSharesNothing) {
  RunConfig config = large_dense();
  config.parallelism.pipeline_parallel_degree = 2;
  config.parallelism.tensor_parallel_degree = 2;
  config.parallelism.sequence_parallel = true;
  config.parallelism.pipeline_split = {23, 25};
  const RunConfig one = make_reference_run(make_small_run(config, 8, {}));
  EXPECT_FALSE(one.parallelism.sequence_parallel);
  EXPECT_TRUE(one.parallelism.pipeline_split.empty());
  EXPECT_EQ(Layout(one, 1).group_of(GroupKind::kModel, 0), std::vector<int>{0});
}

}  // namespace
}  // namespace athanor::small_model_test
