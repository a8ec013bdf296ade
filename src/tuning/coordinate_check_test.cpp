// The coordinate check of Yang et al. 2022 (appendix D.1): how far a few updates move activations and logits, over the
// width of the model.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "arch/width_scaling.h"
#include "base/random.h"
#include "model/initialize.h"
#include "train/train_step.h"

namespace athanor::coordinate_check_test {
namespace {

constexpr int64_t kVocab = 64, kSeqLen = 32, kSequences = 4, kBase = 32;

RunConfig config_of(int64_t width, const char* scaling, bool tied) {
  RunConfig config;
  ModelConfig& m = config.model;
  m.family = "llama";
  m.hidden_size = width;
  m.num_hidden_layers = 2;
  m.num_attention_heads = width / 16;
  m.intermediate_size = 2 * width;
  m.vocab_size = kVocab;
  m.tie_word_embeddings = tied;
  m.initializer_range = 1 / std::sqrt(static_cast<double>(kBase));
  config.data.seq_len = kSeqLen;
  config.train.steps = 10;
  config.train.global_batch_size = config.train.micro_batch_size = kSequences;
  config.train.dtype = "float32";
  config.optimizer.lr = 3e-3;
  config.optimizer.schedule = "constant";
  config.optimizer.warmup_steps = 0;
  config.optimizer.max_grad_norm = 0;
  config.optimizer.scaling = scaling;
  config.optimizer.base_width = kBase;
  return config;
}

Batch fixed_tokens() {
  const CounterRandom random(1, "coordinates");
  Batch batch{kSequences, kSeqLen, std::vector<int32_t>(kSequences * kSeqLen), {}};
  for (size_t i = 0; i < batch.tokens.size(); ++i) batch.tokens[i] = static_cast<int32_t>(random.u64(i) % kVocab);
  return batch;
}

class Recorder : public Observer {
 public:
  void observe(const Observation& seen) override {
    if (seen.phase == Observation::Phase::kForward) last[std::string(seen.place)] = seen.tensor.clone();
  }
  std::map<std::string, Tensor> last;
};

double rms(const Tensor& x) { return std::sqrt(x.square().mean().item<double>()); }

// How far four updates move what the layers add to the residual stream, and the logits: root mean squares by place.
std::map<std::string, double> moves(int64_t width, const char* scaling, bool tied) {
  const RunConfig config = config_of(width, scaling, tied);
  TrainState state(config, {});
  initialize_parameters(config.model, 1, state.model.parameters, width_ratio(config.optimizer, config.model));
  const auto recorder = std::make_shared<Recorder>();
  state.observers.add(recorder);
  const std::string output = tied ? "model.embed_tokens.weight" : "lm_head.weight";
  const auto see = [&] {
    auto seen = recorder->last;
    seen["logits"] = at::matmul(seen.at("model.norm"), state.model.parameters.master_copy(output).t());
    return seen;
  };
  std::map<std::string, Tensor> first, last;
  for (int step = 0; step < 5; ++step) {
    const Batch tokens = fixed_tokens();
    Step now(state, tokens);
    now.compute_gradients();
    (step == 0 ? first : last) = see();
    now.update();
    now.finish();
  }
  std::map<std::string, double> moved;
  for (const char* place : {"model.layers.1.self_attn", "model.layers.1.mlp", "logits"})
    moved[place] = rms(last.at(place) - first.at(place));
  return moved;
}

class CoordinateCheck : public testing::TestWithParam<bool> {};

TEST_P(CoordinateCheck, WithMupAFewUpdatesMoveActivationsAsFarAtEveryWidth) {
  const auto narrow = moves(32, "mup", GetParam()), middle = moves(64, "mup", GetParam()),
             wide = moves(128, "mup", GetParam());
  for (const auto& [place, moved] : narrow) {
    EXPECT_LT(middle.at(place), 1.5 * moved) << place;
    EXPECT_LT(wide.at(place), 1.5 * moved) << place;
  }
}

TEST_P(CoordinateCheck, WithoutItTheyMoveFartherTheWiderTheModel) {
  const auto narrow = moves(32, "none", GetParam()), middle = moves(64, "none", GetParam()),
             wide = moves(128, "none", GetParam());
  for (const auto& [place, moved] : narrow) {
    EXPECT_GT(middle.at(place), 1.2 * moved) << place;
    EXPECT_GT(wide.at(place), 2 * moved) << place;
  }
}

INSTANTIATE_TEST_SUITE_P(Outputs, CoordinateCheck, testing::Bool(),
                         [](const auto& tied) { return std::string(tied.param ? "Tied" : "Untied"); });

}  // namespace
}  // namespace athanor::coordinate_check_test
