#include "smoke/smoke_difference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/initialize.h"
#include "smoke/smoke.h"
#include "smoke/smoke_tracer.h"
#include "smoke/testing/small_trace.h"
#include "train/testing/batches.h"
#include "train/testing/layout_cases.h"

namespace athanor::smoke_difference_test {
namespace {

// After an update of an updated state nothing new comes up.
constexpr size_t kFewSteps = 3;

// Has each model take a few of its fifty steps.
void stop_early(SmokeTracer& tracer) {
  tracer.stop_when([step = size_t{0}, name = std::string()](const TracedModel& model) mutable {
    step = model.name == name ? step + 1 : 1;
    name = model.name;
    return step == kFewSteps;
  });
}

SmokeTrace traced(std::optional<TracedPlace> only = std::nullopt) {
  SmokeTracer tracer(std::move(only));
  stop_early(tracer);
  run_smoke({}, &tracer);
  return tracer.take(at::kCPU);
}

TEST(SmokeDifference, EqualTracesHaveNone) {
  const SmokeTrace trace = small_trace();
  EXPECT_FALSE(first_difference(trace.models[0], trace.models[0]));
  EXPECT_TRUE(differing_facts(trace, trace).empty());
}

TEST(SmokeDifference, TheFirstTensorInTheOrderOfComputationIsNamed) {
  const SmokeTrace here = small_trace();
  SmokeTrace there = here;
  there.models[0].tensors[2].hash = "xx";
  there.models[0].tensors[3].hash = "yy";
  const auto found = first_difference(here.models[0], there.models[0]);
  ASSERT_TRUE(found && found->has_values());
  EXPECT_EQ(found->here->phase, "gradient");
  EXPECT_EQ(found->num_equal, 2u);
  EXPECT_EQ(found->differing_in_step, 2u);
  EXPECT_EQ(found->num_in_step, 3u);
  EXPECT_EQ(describe_difference("dense", *found, "V"),
            "dense: first differs at step 1, gradient, w (2x3 float32): V; hashes cc here, xx there");
}

TEST(SmokeDifference, TracesOfOtherTensorsAreNotComparedByValue) {
  const SmokeTrace here = small_trace();
  SmokeTrace there = here;
  there.models[0].tensors[1].shape = "1x2x4";
  EXPECT_FALSE(first_difference(here.models[0], there.models[0])->has_values());
  there = here;
  there.models[0].tensors.pop_back();
  const auto shorter = first_difference(here.models[0], there.models[0]);
  ASSERT_TRUE(shorter && !shorter->has_values());
  EXPECT_EQ(describe_difference("dense", *shorter, ""),
            "dense: the trace from there ends before step 1, update, w (2x3 float32)");
}

TEST(SmokeDifference, FactsAndModelsThatDifferAreNamed) {
  const SmokeTrace here = small_trace();
  SmokeTrace there = here;
  there.facts[1].second = "def";
  there.models[0].tensors[0].shape = "2x4";
  there.models[1].name = "other";
  EXPECT_EQ(differing_facts(here, there),
            (std::vector<std::string>{"commit: abc here, def there", "dense: 6 parameters here, 8 there",
                                      "sparse: trained here only, and not compared",
                                      "other: trained there only, and not compared"}));
}

TEST(SmokeDifference, TheLargestDifferenceIsNamedWithItsPlaceAndItsShareOfTheLargestValue) {
  const TracedTensor tensor{1, "forward.0", "mlp", "1x2x3", "float32", ""};
  EXPECT_EQ(
      describe_values(tensor, {1, 2, 3, 4, 5, 8}, {1, 2.25, 3, 4, 5.5, 8}),
      "2 of 6 values differ, the largest difference is 0.5 at [0, 1, 1] (5 here, 5.5 there), 2^-4.0 of the largest "
      "value; one rounding of float32 is at most 2^-24 of a value");
}

TEST(SmokeDifference, ZerosOfAnotherSignAndValuesThatAreNotFiniteAreCounted) {
  const TracedTensor tensor{1, "forward.0", "mlp", "3", "float32", ""};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(describe_values(tensor, {0, 1, 2}, {-0.0, 1, 2}),
            "1 of 3 values differ, the largest difference is 0 at [0] (0 here, -0 there)");
  EXPECT_EQ(describe_values(tensor, {1, 1, 2}, {nan, 1, 2}), "1 of 3 values differ; 0 not finite here, 1 there");
}

// Returns the weights after a few steps of a small model, which are taken as run_smoke does it.
Tensor train_small(SmokeTracer* tracer) {
  const RunConfig config = config_with({.name = ""});
  const Batch batch = fixed_batch(config);
  TrainState state(config, {});
  initialize_parameters(config.model, 1, state.model.parameters);
  if (tracer) tracer->begin_model("small", state);
  for (size_t step = 0; step < kFewSteps; ++step) {
    if (!tracer) {
      train_step(state, batch);
      continue;
    }
    tracer->add_input(batch);
    Step now(state, batch);
    now.compute_gradients();
    tracer->add_gradients(state);
    now.update();
    tracer->add_update(state, now.finish());
  }
  return state.model.parameters.compute().clone();
}

// What the tracer has of models that took `steps` steps.
void expect_every_step(SmokeTracer& tracer, size_t num_models, size_t steps) {
  const SmokeTrace trace = tracer.take(at::kCPU);
  ASSERT_EQ(trace.models.size(), num_models);
  std::vector<std::string> phases;
  for (const auto& tensor : trace.models[0].tensors) {
    if (tensor.step == 2 && (phases.empty() || phases.back() != tensor.phase)) phases.push_back(tensor.phase);
  }
  EXPECT_EQ(phases, (std::vector<std::string>{"input", "forward.0", "backward.0", "forward.1", "backward.1", "loss",
                                              "gradient", "norm", "update"}));
  EXPECT_EQ(trace.models[0].tensors.back().step, static_cast<int64_t>(steps));
  EXPECT_EQ(parse_trace(text_of(trace), "t").models[1].tensors, trace.models[1].tensors);
}

TEST(SmokeTracer, RecordsEveryStepInTheOrderOfComputationAndChangesNoBits) {
  SmokeTracer tracer, small;
  stop_early(tracer);
  const auto runs = run_smoke({}, &tracer);
  for (const SmokeRun& run : runs) EXPECT_EQ(run.steps.size(), kFewSteps) << run.model;
  expect_every_step(tracer, runs.size(), kFewSteps);
  EXPECT_TRUE(at::equal(train_small(&small), train_small(nullptr)));
}

TEST(TestAllSmokeTracer, RecordsEveryStepInTheOrderOfComputationAndChangesNoBits) {
  SmokeTracer tracer;
  const auto runs = run_smoke({}, &tracer), plain = run_smoke();
  ASSERT_EQ(runs.size(), plain.size());
  for (size_t i = 0; i < runs.size(); ++i) EXPECT_EQ(runs[i].steps, plain[i].steps) << runs[i].model;
  expect_every_step(tracer, runs.size(), 50);
}

TEST(SmokeTracer, AModelTakesNoStepAfterTheOneThatIsEnough) {
  SmokeTracer tracer;
  tracer.stop_when([](const TracedModel& model) { return model.name != "dense" || model.tensors.back().step == 2; });
  const auto runs = run_smoke({}, &tracer);
  EXPECT_EQ(runs[0].steps.size(), 2u);
  EXPECT_EQ(runs[1].steps.size(), 1u);
  EXPECT_EQ(tracer.take(at::kCPU).models[1].tensors.back().step, 1);
}

TEST(SmokeTracer, ASingleTensorHasTheHashThatItHasInTheWholeTrace) {
  const SmokeTrace whole = traced();
  for (const char* text : {"dense:0:initial:lm_head.weight", "dense:2:forward.1:model.layers.1.mlp",
                           "sparse:1:gradient:lm_head.weight", "dense:1:loss:sum"}) {
    const TracedPlace place = TracedPlace::parse(text);
    const SmokeTrace one = traced(place);
    ASSERT_EQ(one.models.size(), 1u) << text;
    ASSERT_EQ(one.models[0].tensors.size(), 1u) << text;
    EXPECT_FALSE(one.values.empty()) << text;
    const auto& tensors = whole.models[place.model == "dense" ? 0 : 1].tensors;
    EXPECT_EQ(std::ranges::count(tensors, one.models[0].tensors[0]), 1) << text;
  }
}

TEST(SmokeTracer, ATensorThatDoesNotExistIsAnsweredWithTheNearestName) {
  try {
    traced(TracedPlace::parse("dense:1:forward.0:model.layers.1.mpl"));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"forward.0:model.layers.1.mlp\""), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(traced(TracedPlace::parse("other:1:input:tokens")), ConfigError);
  EXPECT_THROW(traced(TracedPlace::parse("dense:51:input:tokens")), ConfigError);
}

TEST(TestAllSmokeTracer, AStepAfterTheFiftiethDoesNotExist) {
  SmokeTracer tracer(TracedPlace::parse("dense:51:input:tokens"));
  run_smoke({}, &tracer);
  EXPECT_THROW(tracer.take(at::kCPU), ConfigError);
}

}  // namespace
}  // namespace athanor::smoke_difference_test
