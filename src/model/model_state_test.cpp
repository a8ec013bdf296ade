// Ranks that share a model wait for weights before they are read, and send gradients as soon as they are final.

#include "model/model_state.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/thread_ranks.h"
#include "model/initialize.h"
#include "model/testing/tiny_models.h"
#include "parallel/gradient_reducer.h"

namespace athanor::model_state_test {
namespace {

constexpr int64_t kSeqLen = 12;

// Two ranks that share a model, whose buckets have one or a few matrices each.
RunConfig shared_model(const std::string& family, const std::vector<std::string>& recompute = {}) {
  RunConfig config;
  config.model = tiny_model(family);
  config.data.seq_len = kSeqLen;
  config.train.global_batch_size = 4;
  config.train.micro_batch_size = 1;
  config.parallelism.data_parallel_shard_degree = 2;
  config.parallelism.bucket_mb = 0.004;
  config.parallelism.recompute = recompute;
  return config;
}

std::vector<Microbatch> two_microbatches() {
  std::vector<Microbatch> microbatches(2);
  for (int64_t i = 0; i < 2; ++i) {
    Microbatch& each = microbatches[static_cast<size_t>(i)];
    each.tokens = at::arange(kSeqLen).mul(7).add(i).remainder(50).view({1, kSeqLen});
    each.labels.targets = each.tokens.roll(-1, 1);
    each.labels.aux_scale = 0.01;
  }
  return microbatches;
}

int64_t number_of_bucket(std::string_view place) {
  return std::stoll(std::string(place.substr(8)));
}  // buckets.7.dense

class Recorder : public Observer {
 public:
  struct Seen {
    std::string place;
    Observation::Phase phase;
    Tensor values;  // only for buckets
  };
  void observe(const Observation& o) override {
    const bool is_bucket = o.phase == Observation::Phase::kReduce;
    if (is_bucket || o.phase == Observation::Phase::kBackward)
      seen.push_back({std::string(o.place), o.phase, is_bucket ? o.tensor.clone() : Tensor()});
  }
  std::vector<Seen> seen;
};

using Family = testing::TestWithParam<std::string>;
class ModelOnTwoRanks : public Family {};
INSTANTIATE_TEST_SUITE_P(Families, ModelOnTwoRanks, testing::ValuesIn(family_names()),
                         [](const auto& instance) { return instance.param; });

TEST_P(ModelOnTwoRanks, GradientsAreSentWhileBackwardContinuesAndAreFinalThen) {
  for (const auto& recompute : {std::vector<std::string>{}, {"layer"}}) {
    const RunConfig config = shared_model(GetParam(), recompute);
    comm::run_ranks(2, [&](comm::World& world) {
      Mesh mesh(Layout(config, 2), world);
      Observers observers;
      ModelState model(config, mesh, {.observers = &observers});
      initialize_parameters(config.model, 1, model.parameters);
      GradientReducer reducer(model.parameters, model.plan, at::kFloat, &observers);
      model.pipeline.forward_backward(two_microbatches());
      const Tensor own = model.parameters.grad().clone();
      model.parameters.grad().zero_();
      const auto recorder = std::make_shared<Recorder>();
      observers.add(recorder);
      model.pipeline.forward_backward(two_microbatches(), &reducer);
      reducer.finish();
      const auto is_bucket = [](const Recorder::Seen& each) { return each.phase == Observation::Phase::kReduce; };
      const auto first_bucket = std::ranges::find_if(recorder->seen, is_bucket);
      ASSERT_NE(first_bucket, recorder->seen.end());
      const std::string& embedding = family_of(config.model).names.embedding;
      const auto backward_of_embedding =
          std::ranges::count(recorder->seen.begin(), first_bucket, embedding, &Recorder::Seen::place);
      EXPECT_EQ(backward_of_embedding, 1) << "in the backward of the last microbatch, before its end";
      auto left = std::ssize(model.parameters.buckets());
      EXPECT_GT(left, config.model.num_hidden_layers);
      for (const auto& each : recorder->seen) {
        if (!is_bucket(each)) continue;
        EXPECT_EQ(number_of_bucket(each.place), --left);
        const FlatRange range = model.parameters.buckets()[static_cast<size_t>(left)].range;
        EXPECT_TRUE(at::equal(each.values, own.narrow(0, range.begin, range.size()))) << each.place;
      }
      EXPECT_EQ(left, 0);
    });
  }
}

// Returns the forward index of a place that is shown after its weights were waited for; nothing for others.
std::optional<int64_t> index_of(std::string_view place, const ModelConfig& model) {
  const FamilyNames& names = family_of(model).names;
  if (place == names.embedding) return 0;
  if (place == names.final_norm) return model.num_hidden_layers + 1;
  const auto [layer, part] = place_in_layer(names, place);
  return part == "." + names.attention ? std::optional(1 + layer) : std::nullopt;
}

class ArrivalWatch : public Observer {
 public:
  explicit ArrivalWatch(const ModelState& model, const ModelConfig& config) : model_(model), config_(config) {}
  void observe(const Observation& o) override {
    const auto index = o.phase == Observation::Phase::kForward ? index_of(o.place, config_) : std::nullopt;
    if (!index) return;
    const auto later = std::ranges::count_if(model_.parameters.buckets(),
                                             [&](const Bucket& each) { return each.first_forward_index > *index; });
    EXPECT_EQ(model_.gatherer.num_on_the_way(), later) << o.place;
    ++num_seen;
  }
  int num_seen = 0;

 private:
  const ModelState& model_;
  const ModelConfig& config_;
};

TEST_P(ModelOnTwoRanks, WeightsAreWaitedForBeforeTheyAreReadAndNotEarlier) {
  const RunConfig config = shared_model(GetParam());
  comm::run_ranks(2, [&](comm::World& world) {
    Mesh mesh(Layout(config, 2), world);
    Observers observers;
    ModelState model(config, mesh, {.observers = &observers});
    initialize_parameters(config.model, 1, model.parameters);
    for (const Bucket& bucket : model.parameters.buckets()) model.gatherer.start(bucket);
    const auto watch = std::make_shared<ArrivalWatch>(model, config.model);
    observers.add(watch);
    const std::vector<Microbatch> microbatches = two_microbatches();
    model.chunks.front()->expect(1, kSeqLen);
    model.chunks.front()->forward(0, microbatches[0].tokens, &microbatches[0].labels);
    EXPECT_EQ(watch->num_seen, config.model.num_hidden_layers + 2);
    EXPECT_EQ(model.gatherer.num_on_the_way(), 0);
  });
}

}  // namespace
}  // namespace athanor::model_state_test
