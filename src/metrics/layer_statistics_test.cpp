// Statistics of layers: the same on every layout as on one rank, and without effect on the training.
#include "metrics/layer_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <mutex>

#include "comm/thread_ranks.h"
#include "metrics/testing/observed_step.h"
#include "model/initialize.h"
#include "train/testing/batches.h"

namespace athanor::layer_statistics_test {
namespace {

constexpr int64_t kSeqLen = 8, kSteps = 2;

RunConfig config_of(const std::string& family, const std::string& dtype = "float32") {
  RunConfig c;
  c.model.family = family;
  c.model.hidden_size = 32;
  c.model.num_hidden_layers = 4;
  c.model.num_attention_heads = 4;
  c.model.intermediate_size = 16;
  if (family == "olmoe") {
    c.model.num_experts = 4;
    c.model.num_experts_per_tok = 2;
  }
  c.model.vocab_size = 64;
  c.model.initializer_range = 0.2;  // logits that differ
  c.data.seq_len = kSeqLen;
  c.train.dtype = dtype;
  c.train.micro_batch_size = 1;
  c.train.global_batch_size = 4;
  c.train.steps = 10;
  c.optimizer.lr = 1e-2;
  c.optimizer.warmup_steps = 1;
  c.moe.dispatch = "allgather";  // no measurement
  c.parallelism.bucket_mb = 0.004;
  return c;
}

struct Observed {
  LayerMetrics layers;
  double grad_norm = 0;
};

// Trains kSteps steps; returns the statistics of the last one on rank 0, and checks that all ranks have them.
Observed observe(const RunConfig& config, int ranks) {
  Observed first;
  std::mutex mutex;
  comm::run_ranks(ranks, [&](comm::World& world) {
    Mesh mesh(Layout(config, ranks), world);
    TrainState state(config, {}, mesh);
    initialize_parameters(config.model, 1, state.model.parameters);
    for (int step = 1; step <= kSteps; ++step) {
      std::optional<LayerMetrics> layers;
      const StepReport report = observed_step(state, fixed_batch(config), true, layers);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(layers.has_value());
      if (step == kSteps && world.rank() == 0) first = {*layers, report.grad_norm};
    }
    EXPECT_TRUE(state.observers.empty());
  });
  return first;
}

double norm_of(const std::vector<double>& norms) {
  double squares = 0;
  for (const double norm : norms) squares += norm * norm;
  return std::sqrt(squares);
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double relative, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (i + 1 < a.size()) {
      EXPECT_GT(a[i], 0) << what << " of row " << i;
    }
    EXPECT_NEAR(a[i], b[i], relative * std::abs(b[i])) << what << " of row " << i;
  }
}

// Gradients are sums of fp32 products over at most 64 tokens and 64 logits, whose order layouts change; two steps of
// AdamW carry the difference on. An update divides by the root of the second moment: where a gradient is almost zero,
// its rounding decides a whole step of size lr, which is seen in the norm of updates only as a share.
constexpr double kRelative = 1e-4, kRelativeOfUpdate = 1e-2;

void expect_same(const Observed& a, const Observed& b) {
  expect_near(a.layers.grad_norm, b.layers.grad_norm, kRelative, "grad_norm");
  expect_near(a.layers.weight_norm, b.layers.weight_norm, kRelative, "weight_norm");
  expect_near(a.layers.update_norm, b.layers.update_norm, kRelativeOfUpdate, "update_norm");
  expect_near(a.layers.activation_rms, b.layers.activation_rms, kRelative, "activation_rms");
  expect_near(a.layers.attention_logit_max, b.layers.attention_logit_max, kRelative, "attention_logit_max");
  for (size_t row = 0; row < a.layers.weights.size(); ++row) {
    double ours = 0, theirs = 0;
    for (int bin = 0; bin < Histogram::kBins; ++bin) {
      ours += a.layers.weights[row].counts[static_cast<size_t>(bin)];
      theirs += b.layers.weights[row].counts[static_cast<size_t>(bin)];
    }
    EXPECT_EQ(ours, theirs) << "every weight is counted once, row " << row;
  }
}

struct Degrees {
  const char* name;
  int data, expert, tensor, pipeline;
  bool sequence_parallel;
  const char* sharding;
};

// @param all  false: every second layout with a tied embedding, and the others without one.
void expect_numbers_of_one_rank(bool all) {
  const Degrees layouts[] = {
      {"data", 2, 1, 1, 1, false, "none"},       {"sharded", 4, 1, 1, 1, false, "optimizer"},
      {"expert", 4, 2, 1, 1, false, "ep_aware"}, {"tensor", 1, 1, 2, 1, false, "none"},
      {"sequence", 1, 1, 2, 1, true, "none"},    {"pipeline", 1, 1, 1, 2, false, "none"},
      {"all", 2, 2, 2, 2, true, "ep_aware"},
  };
  for (const char* family : {"olmo", "olmoe"}) {
    for (const bool tied : {false, true}) {
      RunConfig config = config_of(family);
      config.model.tie_word_embeddings = tied;
      const Observed one = observe(config, 1);
      EXPECT_NEAR(norm_of(one.layers.grad_norm), one.grad_norm, 1e-12 * one.grad_norm);
      // The output layer that is the embedding counts as embedding, and the norm of olmo has no weights.
      EXPECT_EQ(one.layers.grad_norm.back() == 0, tied && config.model.num_experts == 0);
      for (size_t i = 0; i < std::size(layouts); ++i) {
        const Degrees& d = layouts[i];
        if (!all && (i % 2 == 1) != tied) continue;
        if (d.expert > 1 && config.model.num_experts == 0) continue;
        SCOPED_TRACE(std::string(family) + (tied ? " tied " : " ") + d.name);
        RunConfig laid_out = config;
        auto& p = laid_out.parallelism;
        p.data_parallel_shard_degree = d.data;
        p.expert_parallel_degree = d.expert;
        p.tensor_parallel_degree = d.tensor;
        p.pipeline_parallel_degree = d.pipeline;
        p.sequence_parallel = d.sequence_parallel;
        p.sharding = d.sharding;
        const Observed many = observe(laid_out, d.data * d.tensor * d.pipeline);
        EXPECT_NEAR(norm_of(many.layers.grad_norm), many.grad_norm, 1e-12 * many.grad_norm);
        expect_same(many, one);
      }
    }
  }
}

TEST(LayerStatistics, EveryLayoutGivesTheNumbersOfOneRank) { expect_numbers_of_one_rank(/*all=*/false); }

TEST(TestAllLayerStatistics, EveryLayoutGivesTheNumbersOfOneRank) { expect_numbers_of_one_rank(/*all=*/true); }

// @param only  the number of ranks for each type; empty: one and four for both.
void expect_same_bits(const std::map<std::string, int>& only) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    for (const int ranks : {1, 4}) {
      if (!only.empty() && only.at(dtype) != ranks) continue;
      RunConfig config = config_of("olmoe", dtype);
      if (ranks == 4) {
        config.parallelism.data_parallel_shard_degree = 2;
        config.parallelism.expert_parallel_degree = 2;
        config.parallelism.tensor_parallel_degree = 2;
        config.parallelism.sharding = "ep_aware";
      }
      config.parallelism.recompute = {"attention", "moe"};
      std::map<int, Tensor> weights;
      std::mutex mutex;
      for (const bool observed : {false, true}) {
        comm::run_ranks(ranks, [&](comm::World& world) {
          Mesh mesh(Layout(config, ranks), world);
          TrainState state(config, {}, mesh);
          initialize_parameters(config.model, 1, state.model.parameters);
          for (int step = 0; step < kSteps; ++step) {
            std::optional<LayerMetrics> layers;
            if (observed) {
              observed_step(state, fixed_batch(config), true, layers);
            } else {
              train_step(state, fixed_batch(config));
            }
          }
          state.model.gatherer.wait_all();
          const std::lock_guard lock(mutex);
          if (observed) {
            EXPECT_TRUE(at::equal(weights.at(world.rank()), state.model.parameters.compute())) << dtype;
          }
          weights[world.rank()] = state.model.parameters.compute().clone();
        });
      }
    }
  }
}

TEST(LayerStatistics, TheTrainingHasTheSameBitsWithThem) { expect_same_bits({{"float32", 1}, {"bfloat16", 4}}); }

TEST(TestAllLayerStatistics, TheTrainingHasTheSameBitsWithThem) { expect_same_bits({}); }

TEST(LayerStatistics, WhatIsComputedAgainCountsOnce) {
  RunConfig config = config_of("olmoe");
  const Observed kept = observe(config, 1);
  for (const char* kind : {"attention", "layer"}) {
    config.parallelism.recompute = {kind};
    const Observed again = observe(config, 1);
    EXPECT_EQ(again.layers.activation_rms, kept.layers.activation_rms);
    EXPECT_EQ(again.layers.attention_logit_max, kept.layers.attention_logit_max);
  }
}

TEST(LayerStatistics, BlocksOfAnUpdateAreSeenOnceEach) {
  RunConfig config = config_of("olmo");
  config.model.vocab_size = 70'000;  // 2.2 M parameters twice: more than one block
  const Observed one = observe(config, 1);
  double total = 0;
  for (const auto& histogram : one.layers.weights) {
    for (const double count : histogram.counts) total += count;
  }
  EXPECT_EQ(total, 2 * 70'000 * 32 + 4 * (4 * 32 * 32 + 3 * 32 * 16));
}

TEST(Histogram, EveryValueLiesBelowTheUpperEdgeOfItsBinAndNotBelowThatOfTheBinBefore) {
  for (const float magnitude : {1e-10f, 3e-5f, 0.02f, 0.5f, 0.75f, 1.0f, 1.4999f, 1.5f, 2.0f, 700.0f}) {
    for (const float value : {magnitude, -magnitude}) {
      const int bin = Histogram::bin_of(value);
      if (value > 0) {
        EXPECT_LT(value, Histogram::upper_edge(bin)) << value;
        EXPECT_GE(value, Histogram::upper_edge(bin - 1)) << value;
      } else {
        EXPECT_LE(value, Histogram::upper_edge(bin)) << value;
        EXPECT_GT(value, Histogram::upper_edge(bin - 1)) << value;
      }
    }
  }
  for (int bin = 1; bin < Histogram::kBins; ++bin)
    EXPECT_GT(Histogram::upper_edge(bin), Histogram::upper_edge(bin - 1));
  EXPECT_EQ(Histogram::bin_of(0), Histogram::kMagnitudes);
  EXPECT_EQ(Histogram::bin_of(-1e-20f), Histogram::kMagnitudes);
  EXPECT_EQ(Histogram::bin_of(INFINITY), Histogram::kBins - 1);
  EXPECT_EQ(Histogram::bin_of(-1e9f), 0);
}

}  // namespace
}  // namespace athanor::layer_statistics_test
