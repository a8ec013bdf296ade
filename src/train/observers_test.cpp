// Tests what observers see of a step over several ranks, which are threads, and what a run is built with.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "comm/thread_ranks.h"
#include "model/initialize.h"
#include "train/microbatch.h"
#include "train/testing/batches.h"
#include "train/testing/steps.h"
#include "train/train_step.h"

namespace athanor::observers_test {
namespace {

using Phase = Observation::Phase;

constexpr int64_t kSeqLen = 8, kHidden = 32, kMicrobatches = 3;

struct Seen {
  std::string place;
  Phase phase;
  int microbatch;
  std::vector<int64_t> sizes;
};

class Recorder : public Observer {
 public:
  void observe(const Observation& o) override {
    seen.push_back({std::string(o.place), o.phase, o.microbatch, o.tensor.sizes().vec()});
  }
  std::vector<Seen> seen;
};

RunConfig config_of(int data, int tensor, int pipeline) {
  RunConfig c;
  c.model.family = "olmoe";
  c.model.hidden_size = kHidden;
  c.model.num_hidden_layers = 3;
  c.model.num_attention_heads = 4;
  c.model.intermediate_size = 16;
  c.model.num_experts = 4;
  c.model.num_experts_per_tok = 2;
  c.model.vocab_size = 64;
  c.model.tie_word_embeddings = true;
  c.data.seq_len = kSeqLen;
  c.train.dtype = "float32";
  c.train.micro_batch_size = 1;
  c.train.global_batch_size = kMicrobatches * data;
  c.train.steps = 10;
  c.optimizer.warmup_steps = 1;
  c.parallelism.data_parallel_shard_degree = data;
  c.parallelism.tensor_parallel_degree = tensor;
  c.parallelism.pipeline_parallel_degree = pipeline;
  c.parallelism.sequence_parallel = tensor > 1;
  c.parallelism.bucket_mb = 0.004;
  return c;
}

void on_ranks(const RunConfig& config, const std::function<void(TrainState&, std::mutex&)>& act,
              const TrainStateOptions& options = {}) {
  const auto& p = config.parallelism;
  const auto ranks =
      static_cast<int>(p.data_parallel_shard_degree * p.tensor_parallel_degree * p.pipeline_parallel_degree);
  std::mutex mutex;
  comm::run_ranks(ranks, [&](comm::World& world) {
    Mesh mesh(Layout(config, ranks), world);
    TrainState state(config, {}, mesh, options);
    initialize_parameters(config.model, 1, state.model.parameters);
    act(state, mutex);
  });
}

bool is_bucket(const Seen& seen) { return seen.place.starts_with("buckets."); }

TEST(Observers, EveryBlockOfTheModelIsSeenOnTheTensorRanksOfItsStageAlone) {
  const RunConfig config = config_of(1, 2, 2);
  std::map<std::tuple<std::string, Phase, int>, int> times;
  on_ranks(config, [&](TrainState& state, std::mutex& mutex) {
    const auto recorder = std::make_shared<Recorder>();
    state.observers.add(recorder);
    train_step(state, fixed_batch(config));
    const std::lock_guard lock(mutex);
    for (const Seen& seen : recorder->seen) {
      if (is_bucket(seen)) continue;
      ++times[{seen.place, seen.phase, seen.microbatch}];
      EXPECT_EQ(seen.sizes, (std::vector<int64_t>{1, kSeqLen / 2, kHidden})) << seen.place;  // the tokens of a rank
    }
  });
  std::set<std::string> places = {"model.embed_tokens", "model.norm"};
  for (const char* layer : {"model.layers.0", "model.layers.1", "model.layers.2"}) {
    for (const char* part : {"", ".self_attn", ".mlp"}) places.insert(std::string(layer) + part);
  }
  std::map<std::tuple<std::string, Phase, int>, int> expected;
  for (int m = 0; m < kMicrobatches; ++m) {
    for (const std::string& place : places)
      expected[{place, Phase::kForward, m}] = expected[{place, Phase::kBackward, m}] = 2;
    expected[{"pipeline.to_stage.1", Phase::kForward, m}] = 2;
    expected[{"pipeline.to_stage.0", Phase::kBackward, m}] = 2;
    expected[{"pipeline.from_stage.0", Phase::kForward, m}] = 2;
    expected[{"pipeline.from_stage.1", Phase::kBackward, m}] = 2;
  }
  EXPECT_EQ(times, expected);
}

TEST(Observers, AStageSeesItsBlocksInOrderAndWhatItSendsLast) {
  const RunConfig config = config_of(1, 1, 2);
  std::vector<std::string> first, last;
  on_ranks(config, [&](TrainState& state, std::mutex& mutex) {
    const auto recorder = std::make_shared<Recorder>();
    state.observers.add(recorder);
    train_step(state, fixed_batch(config));
    const std::lock_guard lock(mutex);
    for (const Seen& seen : recorder->seen) {
      if (seen.microbatch != 1) continue;
      (state.model.mesh.rank() == 0 ? first : last).push_back(std::string(phase_name(seen.phase)) + " " + seen.place);
    }
  });
  // For every split of the layers, a stage ends with the sum after its last layer, which it sends.
  ASSERT_GT(first.size(), 8u);
  EXPECT_EQ(first.front(), "forward model.embed_tokens");
  const auto sent = std::ranges::find(first, "forward pipeline.to_stage.1");
  ASSERT_NE(sent, first.end());
  EXPECT_TRUE((sent - 1)->starts_with("forward model.layers.") && !(sent - 1)->ends_with("mlp")) << *(sent - 1);
  EXPECT_EQ(*(sent + 1), "backward pipeline.from_stage.1");
  EXPECT_EQ(*(sent + 2), "backward" + (sent - 1)->substr(7));
  EXPECT_EQ(first.back(), "backward model.embed_tokens");
  const auto normed = std::ranges::find(last, "forward model.norm");
  ASSERT_NE(normed, last.end());
  EXPECT_EQ(*(normed + 1), "backward model.norm");
  EXPECT_EQ(last.back(), "backward pipeline.to_stage.0");
}

TEST(Observers, ABucketIsSeenBeforeAndAfterItsSumAndAgainWhereAReplicaGroupAddsToIt) {
  const RunConfig config = config_of(2, 2, 1);
  on_ranks(config, [&](TrainState& state, std::mutex& mutex) {
    const auto recorder = std::make_shared<Recorder>();
    state.observers.add(recorder);
    train_step(state, fixed_batch(config));
    const std::lock_guard lock(mutex);
    std::map<std::string, std::vector<Phase>> phases;
    bool reduced = false;
    for (const Seen& seen : recorder->seen) {
      if (!is_bucket(seen)) continue;
      EXPECT_EQ(seen.microbatch, Observation::kAllMicrobatches);
      phases[seen.place].push_back(seen.phase);
      EXPECT_FALSE(reduced && seen.phase == Phase::kReduce) << "all are on their way before the first is waited for";
      reduced |= seen.phase == Phase::kReduced;
    }
    size_t replicated = 0;
    for (const Bucket& bucket : state.model.parameters.buckets()) {
      std::vector<Phase> expected = {Phase::kReduce, Phase::kReduced};
      if (state.model.plan.of(bucket).replicas) expected.push_back(Phase::kAddedOverReplicas), ++replicated;
      EXPECT_EQ(phases[bucket_place(state.model.parameters, bucket)], expected) << bucket.replication.name();
    }
    EXPECT_EQ(phases.size(), state.model.parameters.buckets().size());
    EXPECT_TRUE(phases.contains(std::string("buckets.0.") + state.model.parameters.buckets()[0].replication.name()));
    EXPECT_GT(replicated, 0u);
  });
}

class Zeroing : public Observer {
 public:
  void observe(const Observation& o) override {
    if (o.phase == Phase::kReduce) o.tensor.zero_();
  }
};

TEST(Observers, WhatIsWrittenIntoABucketIsWhatIsSummed) {
  const RunConfig config = config_of(2, 1, 1);
  on_ranks(config, [&](TrainState& state, std::mutex& mutex) {
    state.observers.add(std::make_shared<Zeroing>());
    const StepReport report = compute_gradients(state, fixed_batch(config));
    const std::lock_guard lock(mutex);
    EXPECT_EQ(report.grad_norm, 0);
    EXPECT_GT(report.parts.loss_sum, 0);
  });
}

TEST(Observers, EvaluationShowsNothing) {
  const RunConfig config = config_of(1, 1, 2);
  on_ranks(config, [&](TrainState& state, std::mutex& mutex) {
    const auto recorder = std::make_shared<Recorder>();
    state.observers.add(recorder);
    state.model.pipeline.score(split_batch(fixed_batch(config), config, 0, 1, state.model.mesh.layout(), 0));
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(recorder->seen.empty());
  });
}

TEST(Observers, AListThatOnlyLooksChangesNoBits) {
  const RunConfig config = config_of(2, 2, 1);
  std::map<int, Tensor> gradients;
  for (const bool watched : {false, true}) {
    on_ranks(config, [&](TrainState& state, std::mutex& mutex) {
      if (watched) state.observers.add(std::make_shared<Recorder>());
      compute_gradients(state, fixed_batch(config));
      const std::lock_guard lock(mutex);
      if (watched) {
        EXPECT_TRUE(at::equal(gradients.at(state.model.mesh.rank()), state.model.parameters.grad()));
      }
      gradients[state.model.mesh.rank()] = state.model.parameters.grad().clone();
    });
  }
}

TEST(TrainState, WhatIsPutAroundAStageIsWhatThePipelineDrives) {
  struct Counting : Stage {
    Counting(Stage& inner, std::atomic<int>& calls) : inner_(inner), calls_(calls) {}
    void expect(int64_t batch, int64_t seq_len) override {
      inner_.expect(batch, seq_len);
      in = inner_.in, out = inner_.out;
    }
    Tensor forward(int m, Tensor x, const Labels* labels) override {
      ++calls_;
      return inner_.forward(m, std::move(x), labels);
    }
    Tensor backward(int m, Tensor dy, GradientReducer* sums) override {
      return inner_.backward(m, std::move(dy), sums);
    }
    LossParts take_parts(int m) override { return inner_.take_parts(m); }
    Tensor forward_only(Tensor x, const Labels* labels) override { return inner_.forward_only(std::move(x), labels); }
    TokenScores score(Tensor x, const Labels* labels) override { return inner_.score(std::move(x), labels); }
    Stage& inner_;
    std::atomic<int>& calls_;
  };
  std::atomic<int> calls = 0, embedding = 0;
  TrainStateOptions options;
  options.wrap_stage = [&](Stage& stage, const StageLayers& layers, const Mesh& mesh) -> std::unique_ptr<Stage> {
    EXPECT_EQ(layers.embeds, mesh.rank() == 0);
    if (!layers.embeds) return nullptr;
    ++embedding;
    return std::make_unique<Counting>(stage, calls);
  };
  const RunConfig config = config_of(1, 1, 2);
  on_ranks(
      config, [&](TrainState& state, std::mutex&) { train_step(state, fixed_batch(config)); }, options);
  EXPECT_EQ(embedding, 1);
  EXPECT_EQ(calls, kMicrobatches);
}

}  // namespace
}  // namespace athanor::observers_test
