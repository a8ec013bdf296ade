#include "layout/stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "arch/flops.h"
#include "base/random.h"
#include "base/text.h"

namespace athanor::stages_test {
namespace {

ModelConfig model_of(int64_t layers, int64_t vocab_size = 256) {
  ModelConfig model;
  model.family = "olmo";
  model.hidden_size = 64;
  model.num_hidden_layers = layers;
  model.num_attention_heads = 4;
  model.intermediate_size = 128;
  model.vocab_size = vocab_size;
  model.max_position_embeddings = 128;
  return model;
}

ParallelismConfig pipeline_of(int64_t degree, int64_t virtual_stages = 1, std::vector<int64_t> split = {}) {
  ParallelismConfig p;
  p.pipeline_parallel_degree = degree;
  p.virtual_stages = virtual_stages;
  p.pipeline_split = std::move(split);
  return p;
}

std::vector<int64_t> layers_of(const std::vector<StageLayers>& stages) {
  std::vector<int64_t> layers;
  for (const auto& stage : stages) layers.push_back(stage.num_layers());
  return layers;
}

using Layers = std::vector<int64_t>;

double dearest(const ModelConfig& model, const std::vector<StageLayers>& stages) {
  double most = 0;
  for (const auto& stage : stages) most = std::max(most, stage_cost(model, stage));
  return most;
}

// Visits every way to cut `layers` into `stages`.
template <class Visit>
void for_all_splits(int64_t layers, int64_t stages, Layers& split, const Visit& visit) {
  if (stages == 1) {
    split.push_back(layers);
    visit(split);
    split.pop_back();
    return;
  }
  for (int64_t here = 1; here <= layers - stages + 1; ++here) {
    split.push_back(here);
    for_all_splits(layers - here, stages - 1, split, visit);
    split.pop_back();
  }
}

TEST(Stages, OneStageHasEverything) {
  const auto model = model_of(5);
  EXPECT_EQ(split_stages(model, pipeline_of(1)), (std::vector<StageLayers>{{0, 5, true, true}}));
}

TEST(Stages, LayersOfEqualCostAndACheapOutputAreSplitEvenlyWithFewerInFront) {
  EXPECT_EQ(layers_of(split_stages(model_of(8, 2), pipeline_of(4))), (Layers{2, 2, 2, 2}));
  // Three stages must have three layers; the output makes the last stage cost more.
  EXPECT_EQ(layers_of(split_stages(model_of(11, 2), pipeline_of(4))), (Layers{3, 3, 3, 2}));
  EXPECT_EQ(layers_of(split_stages(model_of(9, 2), pipeline_of(4))), (Layers{2, 2, 3, 2}));
}

TEST(Stages, AnOutputAsDearAsTwoLayersTakesTheirPlace) {
  auto model = model_of(10);
  const double layer = stage_cost(model, {0, 1, false, false});
  model.vocab_size = static_cast<int64_t>(2 * layer / (2.0 * static_cast<double>(model.hidden_size)));
  EXPECT_EQ(layers_of(split_stages(model, pipeline_of(4))), (Layers{3, 3, 3, 1}));
  model.vocab_size *= 10;  // the output costs more than all layers, but the last stage still has one
  EXPECT_EQ(layers_of(split_stages(model, pipeline_of(4))), (Layers{3, 3, 3, 1}));
  EXPECT_EQ(split_stages(model, pipeline_of(4)).front(), (StageLayers{0, 3, true, false}));
  EXPECT_EQ(split_stages(model, pipeline_of(4)).back(), (StageLayers{9, 10, false, true}));
}

TEST(Stages, ADenseLayerCountsWhatItCosts) {
  ModelConfig model = model_of(6, 2);
  model.family = "qwen3_moe";
  model.num_experts = 8;
  model.num_experts_per_tok = 1;
  model.moe_intermediate_size = 16;
  model.mlp_only_layers = {0};
  model.intermediate_size = 1600;
  EXPECT_EQ(layers_of(split_stages(model, pipeline_of(2))), (Layers{1, 5}));
}

TEST(Stages, NoSplitHasACheaperDearestStageOrIsMoreEvenOrBeginsWithFewer) {
  const CounterRandom random(1, "stages_test");
  uint64_t counter = 0;
  for (int i = 0; i < 200; ++i) {
    const auto layers = static_cast<int64_t>(1 + random.below(counter++, 9));
    const auto stages = static_cast<int64_t>(1 + random.below(counter++, static_cast<uint64_t>(layers)));
    auto model = model_of(layers, static_cast<int64_t>(2 + random.below(counter++, 2000)));
    model.family = "qwen3_moe";
    model.num_experts = 8;
    model.num_experts_per_tok = static_cast<int64_t>(1 + random.below(counter++, 8));
    model.moe_intermediate_size = 64;
    for (int64_t l = 0; l < layers; ++l) {
      if (random.below(counter++, 3) == 0) model.mlp_only_layers.push_back(l);
    }
    const auto found = split_stages(model, pipeline_of(stages));
    const auto squares = [&](const std::vector<StageLayers>& split) {
      double sum = 0;
      for (const auto& stage : split) sum += stage_cost(model, stage) * stage_cost(model, stage);
      return sum;
    };
    Layers split;
    for_all_splits(layers, stages, split, [&](const Layers& other) {
      const auto given = split_stages(model, pipeline_of(stages, 1, other));
      const double here = dearest(model, given), ours = dearest(model, found);
      ASSERT_GE(here, ours) << i;
      if (here > ours) return;
      ASSERT_GE(squares(given), squares(found)) << i;
      ASSERT_TRUE(squares(given) > squares(found) || other >= layers_of(found)) << i;
    });
  }
}

TEST(Stages, AGivenSplitWins) {
  const auto p = pipeline_of(2, 2, {4, 1, 2, 3});
  EXPECT_EQ(split_stages(model_of(10), p),
            (std::vector<StageLayers>{
                {0, 4, true, false}, {4, 5, false, false}, {5, 7, false, false}, {7, 10, false, true}}));
}

TEST(Stages, ARanksChunksAreEveryDegreethStage) {
  const auto p = pipeline_of(2, 2, {4, 1, 2, 3});
  EXPECT_EQ(stages_of(model_of(10), p, 0), (std::vector<StageLayers>{{0, 4, true, false}, {5, 7, false, false}}));
  EXPECT_EQ(stages_of(model_of(10), p, 1), (std::vector<StageLayers>{{4, 5, false, false}, {7, 10, false, true}}));
}

TEST(Stages, CostsOfAllStagesAreTheForwardFlopsOfAToken) {
  auto model = model_of(7, 1000);
  model.family = "qwen3_moe";
  model.num_experts = 8;
  model.num_experts_per_tok = 2;
  model.num_shared_experts = 1;
  model.decoder_sparse_step = 2;
  double sum = 0;
  for (const auto& stage : split_stages(model, pipeline_of(3))) sum += stage_cost(model, stage);
  EXPECT_EQ(sum, count_forward_flops(model, 1, 128).total() / 128);
}

TEST(Stages, AWideModelWithManyStagesIsSplitExactly) {
  ModelConfig model = model_of(96, 256000);
  model.hidden_size = 12288;
  model.num_attention_heads = 96;
  model.intermediate_size = 4 * 12288;
  model.max_position_embeddings = 131072;
  const auto split = layers_of(split_stages(model, pipeline_of(8, 3)));
  EXPECT_EQ(std::accumulate(split.begin(), split.end(), int64_t{0}), 96);
  EXPECT_EQ(*std::ranges::max_element(split), 5);
  EXPECT_EQ(split.back(), 3);  // the output costs 1.3 layers
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::string faults_of(int64_t layers, const ParallelismConfig& p) {
  return join(find_split_faults(model_of(layers), p), "\n");
}

TEST(SplitFaults, WhatAddsUpHasNone) {
  EXPECT_EQ(faults_of(4, pipeline_of(1)), "");
  EXPECT_EQ(faults_of(4, pipeline_of(2, 2)), "");
  EXPECT_EQ(faults_of(4, pipeline_of(2, 1, {3, 1})), "");
}

TEST(SplitFaults, FewerLayersThanStagesAreCounted) {
  EXPECT_EQ(faults_of(5, pipeline_of(3, 2)),
            "parallelism.pipeline_parallel_degree (3) · virtual_stages (2) = 6 stages, and the model has 5 layers "
            "(model.num_hidden_layers): each stage needs at least one; lower the degree or virtual_stages");
}

TEST(SplitFaults, ASplitOfAnotherLengthAndAnotherSumAndAnEmptyStageAreToldAtOnce) {
  const auto text = faults_of(8, pipeline_of(4, 1, {5, 0, 2}));
  EXPECT_HAS(text, "pipeline_split has 3 numbers for the 4 stages of parallelism.pipeline_parallel_degree (4)");
  EXPECT_HAS(text, "pipeline_split[1] (0): a stage has at least one layer");
  EXPECT_HAS(text, "pipeline_split (5, 0, 2) adds up to 7 layers, and the model has 8");
  EXPECT_HAS(text, "change it by +1");
}

TEST(SplitFaults, NegativeLayersThatAddUpAreNoSplit) {
  EXPECT_EQ(faults_of(4, pipeline_of(2, 1, {5, -1})),
            "parallelism.pipeline_split[1] (-1): a stage has at least one layer");
}

TEST(SplitFaults, ASplitWithoutAPipelineIsRefused) {
  EXPECT_HAS(faults_of(4, pipeline_of(1, 1, {4})), "pipeline_split is for pipelines");
}

TEST(SplitFaults, AbsurdNumbersOverflowNowhere) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_HAS(faults_of(4, pipeline_of(kHuge, kHuge)), "stages, and the model has 4 layers");
  EXPECT_HAS(faults_of(4, pipeline_of(2, 1, {kHuge, kHuge})), "adds up to more layers than there can be");
}

}  // namespace
}  // namespace athanor::stages_test
