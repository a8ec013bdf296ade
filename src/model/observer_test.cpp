// Tests what observers see of a decoder: each block once, in order, with its gradient, and nothing in evaluation.

#include "parallel/observer.h"

#include <gtest/gtest.h>

#include <functional>

#include "model/decoder.h"
#include "model/initialize.h"
#include "parallel/loss_sum.h"

namespace athanor::observer_test {
namespace {

constexpr int64_t kBatch = 2, kSeqLen = 12, kHidden = 32;

// Records what was seen as text, such as "0 backward model.norm".
class Recorder : public Observer {
 public:
  void observe(const Observation& o) override {
    EXPECT_EQ(o.tensor.sizes(), (std::vector<int64_t>{kBatch, kSeqLen, kHidden})) << o.place;
    EXPECT_FALSE(o.tensor.requires_grad()) << o.place;
    seen.push_back(std::to_string(o.microbatch) + " " + phase_name(o.phase) + " " + std::string(o.place));
    values.push_back(o.tensor.clone());
  }
  const Tensor& value(const std::string& what) const {
    const auto found = std::ranges::find(seen, what);
    EXPECT_NE(found, seen.end()) << what;
    return values.at(static_cast<size_t>(found - seen.begin()));
  }
  std::vector<std::string> seen;
  std::vector<Tensor> values;
};

class Acting : public Observer {
 public:
  explicit Acting(std::function<void(const Observation&)> act) : act_(std::move(act)) {}
  void observe(const Observation& o) override { act_(o); }

 private:
  std::function<void(const Observation&)> act_;
};

struct Fixture {
  explicit Fixture(const std::string& family, const RecomputeKinds& recompute = {}) {
    model.family = family;
    model.hidden_size = kHidden;
    model.num_hidden_layers = 2;
    model.num_attention_heads = 4;
    model.intermediate_size = 24;
    model.vocab_size = 50;
    model.initializer_range = 0.1;
    if (family == "olmoe") model.num_experts = 6, model.num_experts_per_tok = 2;
    parameters =
        std::make_unique<ParameterStore>(make_bucket_entries(model), at::kFloat, ParameterStore::Use::kTraining);
    initialize_parameters(model, 1, *parameters);
    DecoderOptions options;
    options.recompute = recompute;
    options.observers = &observers;
    decoder = std::make_unique<Decoder>(model, *parameters, options);
    at::manual_seed(3);
    tokens = at::randint(0, 50, {kBatch, kSeqLen}, at::kLong);
    labels.targets = at::roll(tokens, -1, 1);
    labels.aux_scale = 0.01;
  }
  double loss(int microbatch) {
    decoder->forward(microbatch, tokens, &labels);
    decoder->backward(microbatch, {}, nullptr);
    return numbers_of(decoder->take_parts(microbatch)).loss_sum;
  }
  std::shared_ptr<Recorder> record() {
    auto recorder = std::make_shared<Recorder>();
    observers.add(recorder);
    return recorder;
  }

  ModelConfig model;
  Observers observers;
  std::unique_ptr<ParameterStore> parameters;
  std::unique_ptr<Decoder> decoder;
  Tensor tokens;
  Labels labels;
};

const std::vector<std::string> kPlaces = {
    "model.embed_tokens",       "model.layers.0.self_attn", "model.layers.0.mlp", "model.layers.0",
    "model.layers.1.self_attn", "model.layers.1.mlp",       "model.layers.1",     "model.norm"};

std::vector<std::string> of_microbatch(int microbatch, const char* phase, std::vector<std::string> places) {
  for (std::string& place : places) place = std::to_string(microbatch) + " " + phase + " " + place;
  return places;
}

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// In backward, a layer's parts are seen after the layer: in forward, the layer ends last.
const std::vector<std::string> kPlacesBack(kPlaces.rbegin(), kPlaces.rend());

TEST(Observer, EachBlockIsSeenOnceInForwardAndOnceInBackwardOfEachMicrobatch) {
  for (const char* family : {"olmo", "olmoe"}) {
    Fixture f(family);
    const auto seen = f.record();
    f.loss(0);
    f.loss(1);
    std::vector<std::string> expected;
    for (int m = 0; m < 2; ++m) {
      append(expected, of_microbatch(m, "forward", kPlaces));
      append(expected, of_microbatch(m, "backward", kPlacesBack));
    }
    EXPECT_EQ(seen->seen, expected) << family;
  }
}

TEST(Observer, MicrobatchesUnderWayTogetherKeepTheirNumbers) {
  Fixture f("olmo");
  const auto seen = f.record();
  f.decoder->forward(0, f.tokens, &f.labels);
  f.decoder->forward(1, f.tokens, &f.labels);
  f.decoder->backward(0, {}, nullptr);
  f.decoder->backward(1, {}, nullptr);
  std::vector<std::string> expected = of_microbatch(0, "forward", kPlaces);
  append(expected, of_microbatch(1, "forward", kPlaces));
  append(expected, of_microbatch(0, "backward", kPlacesBack));
  append(expected, of_microbatch(1, "backward", kPlacesBack));
  EXPECT_EQ(seen->seen, expected);
}

TEST(Observer, WhatIsComputedAgainIsNotSeenAsANewForward) {
  for (int bits = 1; bits < 16; ++bits) {
    const RecomputeKinds kinds{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
    for (const char* family : {"olmo", "olmoe"}) {
      Fixture f(family, kinds), plain(family);
      const auto seen = f.record(), expected = plain.record();
      EXPECT_EQ(f.loss(0), plain.loss(0));
      std::vector<std::string> again;
      for (size_t i = 0; i < seen->seen.size(); ++i) {
        const std::string& what = seen->seen[i];
        if (what.find("recompute") == std::string::npos) continue;
        again.push_back(what.substr(what.rfind(' ') + 1));
        EXPECT_TRUE(at::equal(seen->values[i], expected->value("0 forward " + again.back()))) << what;
      }
      std::erase_if(seen->seen, [](const auto& what) { return what.find("recompute") != std::string::npos; });
      EXPECT_EQ(seen->seen, expected->seen) << family << " subset " << bits;
      const std::vector<std::string> layers = {"model.layers.1.self_attn", "model.layers.1.mlp", "model.layers.1",
                                               "model.layers.0.self_attn", "model.layers.0.mlp", "model.layers.0"};
      EXPECT_EQ(again, kinds.layer ? layers : std::vector<std::string>{}) << family << " subset " << bits;
    }
  }
}

TEST(Observer, EvaluationAndGenerationShowNothing) {
  Fixture f("olmoe");
  const auto seen = f.record();
  f.decoder->score(f.tokens, &f.labels);
  f.decoder->forward_only(f.tokens, &f.labels);
  f.decoder->logits(f.tokens);
  const auto caches = f.decoder->make_caches(1, kSeqLen);
  f.decoder->forward_cached(f.tokens.narrow(0, 0, 1), {{0}, {kSeqLen}, {0}}, caches);
  EXPECT_TRUE(seen->seen.empty());
}

TEST(Observer, AListThatOnlyLooksChangesNoBits) {
  for (const char* family : {"olmo", "olmoe"}) {
    Fixture f(family), plain(family);
    f.record();
    EXPECT_EQ(f.loss(0), plain.loss(0));
    EXPECT_TRUE(at::equal(f.parameters->grad(), plain.parameters->grad())) << family;
  }
}

// Adding ±h·g/|g| to a value changes the loss by ±h·|g| if g is its gradient. The loss is that of 22 targets, each
// about 4 and exact to 2^-22. So differences of 2h·|g| ≥ 0.1 are exact to 1e-4, and h² changes them by as much.
TEST(Observer, BackwardShowsTheGradientOfWhatForwardShowed) {
  Fixture f("olmo");
  f.labels.aux_scale = 0;
  const auto seen = f.record();
  f.loss(0);
  for (const std::string& place : kPlaces) {
    const Tensor g = seen->value("0 backward " + place);
    const double size = g.to(at::kDouble).norm().item<double>(), h = 0.02;
    double loss[2];
    for (int side = 0; side < 2; ++side) {
      Fixture moved("olmo");
      moved.labels.aux_scale = 0;
      // The residual stream after a layer is reported by the next norm, which has read it, so its last term is changed
      // instead.
      const bool stream = place == "model.layers.0" || place == "model.layers.1";
      moved.observers.add(std::make_shared<Acting>([&](const Observation& o) {
        if (o.phase == Observation::Phase::kForward && o.place == (stream ? place + ".mlp" : place))
          o.tensor.add_(g, (side == 0 ? h : -h) / size);
      }));
      loss[side] = moved.loss(0);
    }
    EXPECT_NEAR((loss[0] - loss[1]) / (2 * h * size), 1, 0.01) << place;
  }
}

TEST(Observer, WhatThrowsInBackwardEndsTheStepWithItsMessage) {
  Fixture f("olmo");
  f.observers.add(std::make_shared<Acting>([](const Observation& o) {
    if (o.phase == Observation::Phase::kBackward) throw std::runtime_error("not finite at " + std::string(o.place));
  }));
  f.decoder->forward(0, f.tokens, &f.labels);
  EXPECT_THROW(f.decoder->backward(0, {}, nullptr), std::runtime_error);
}

}  // namespace
}  // namespace athanor::observer_test
