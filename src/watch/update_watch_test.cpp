// What rounding does to updates: each planted case is found by the name of its parameter, on every layout.

#include "watch/update_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "metrics/layer_statistics.h"
#include "metrics/testing/observed_step.h"
#include "saves/testing/ranks.h"
#include "train/testing/batches.h"
#include "train/testing/steps.h"

namespace athanor::update_watch_test {
namespace {

using Plant = std::function<void(TrainState&)>;

const std::string kProjection = "model.layers.1.self_attn.o_proj.weight";
const std::string kExperts = "model.layers.1.mlp.experts.down_proj.weight";

class UpdatesOfARun : public Ranks {
 protected:
  // Measured at every step. One step of AdamW without decay moves each element by the learning rate.
  RunConfig measured(const Degrees& degrees, const std::string& dtype, double lr,
                     const std::string& optimizer = "adamw") const {
    RunConfig c = with_few_microbatches(config(degrees, "updates", dtype));
    c.metrics.update_watch_interval = 1;
    c.optimizer.name = optimizer;
    c.optimizer.lr = lr;
    c.optimizer.min_lr = lr;
    c.optimizer.weight_decay = 0;
    return c;
  }

  // The numbers of the first step, which all ranks must tell equally. `plant` is called before the update.
  static std::vector<ParameterUpdate> measure(
      const RunConfig& config, const Plant& plant = [](TrainState&) {}) {
    std::vector<std::vector<ParameterUpdate>> all;
    std::mutex one;
    on_ranks(config, [&](TrainState& state) {
      initialize(state);
      const Batch tokens = batch(0);
      Step step(state, tokens);
      step.compute_gradients();
      plant(state);
      step.update();
      const StepReport report = step.finish();
      const std::lock_guard lock(one);
      all.push_back(report.updates);
    });
    for (const auto& each : all) {
      EXPECT_EQ(each.size(), all[0].size());
      for (size_t i = 0; i < each.size(); ++i) EXPECT_EQ(each[i].lost_share, all[0][i].lost_share);
    }
    return all.at(0);
  }

  static ParameterUpdate of(const std::vector<ParameterUpdate>& updates, const std::string& name) {
    for (const ParameterUpdate& each : updates)
      if (each.name == name) return each;
    throw std::runtime_error("no numbers of " + name);
  }

  // The same gradient on every layout: one value for each parameter.
  static void fill_gradients(TrainState& state, float value) {
    state.model.parameters.grad().zero_();
    for (const BucketEntry& entry : state.model.parameters.table())
      state.model.parameters.weight(entry.name).grad.fill_(value);
  }
  static void fill_gradient(TrainState& state, const std::string& name, float value) {
    for (const BucketEntry& entry : state.model.parameters.table())
      if (entry.name == name) state.model.parameters.weight(name).grad.fill_(value);
  }
  static void fill_masters(TrainState& state, const std::string& name, float value) {
    for (const BucketEntry& entry : state.model.parameters.table()) {
      if (entry.name != name) continue;
      const std::vector<float> values(static_cast<size_t>(entry.num_elements()), value);
      state.model.parameters.write_master(entry, 0, values);
    }
  }

  // Trains without and with measuring of every second step.
  void expect_same_bits_if_measured(const std::string& optimizer, const Degrees& degrees) const {
    std::vector<Tensor> weights;
    for (const int64_t interval : {0, 2}) {
      RunConfig c = measured(degrees, "bfloat16", 1e-2, optimizer);
      c.metrics.update_watch_interval = interval;
      std::mutex one;
      on_ranks(c, [&](TrainState& state) {
        initialize(state);
        for (int64_t step = 1; step <= 4; ++step) {
          std::optional<LayerMetrics> layers;  // another observer of the same update
          const StepReport report =
              step == 4 ? observed_step(state, batch(step), false, layers) : train_step(state, batch(step));
          const std::lock_guard lock(one);
          EXPECT_EQ(report.updates.empty(), interval == 0 || step % 2 != 0) << step;
          EXPECT_EQ(layers.has_value(), step == 4);
        }
        state.model.gatherer.wait_all();
        const std::lock_guard lock(one);
        if (state.model.mesh.is_first()) weights.push_back(state.model.parameters.compute().clone());
      });
    }
    EXPECT_TRUE(at::equal(weights[0], weights[1])) << optimizer << " on " << degrees.text();
  }
};
using TestAllUpdatesOfARun = UpdatesOfARun;

std::vector<std::string> kinds_of(const std::vector<UpdateFault>& faults) {
  std::vector<std::string> kinds;
  for (const UpdateFault& each : faults) kinds.push_back(each.kind);
  return kinds;
}

TEST_F(UpdatesOfARun, AHealthyRunIsSilentWithEveryOptimizer) {
  for (const char* optimizer : {"adamw", "sgd", "lamb", "sophiag", "muon"}) {
    for (const char* dtype : {"float32", "bfloat16"}) {
      const double lr = std::string(optimizer) == "sgd" ? 1 : 1e-2;  // a step of SGD is no larger than the gradient
      const std::vector<UpdateFault> faults = UpdateWatch().took(1, measure(measured(kOne, dtype, lr, optimizer)));
      EXPECT_TRUE(faults.empty()) << optimizer << " " << dtype << ": " << faults.at(0).text;
    }
  }
}

TEST_F(UpdatesOfARun, ARateSoSmallThatFp32LosesItIsFoundAndNamesTheParameters) {
  // The scales of norms are 1: half of the spacing of fp32 there is 2⁻²⁴ above and 2⁻²⁵ below.
  const auto norms_at = [&](double lr) { return of(measure(measured(kOne, "float32", lr)), "model.norm.weight"); };
  EXPECT_EQ(norms_at(0x1p-26).lost_share, 1);
  EXPECT_EQ(norms_at(0x1p-23).lost_share, 0);
  const std::vector<UpdateFault> faults = UpdateWatch().took(7, measure(measured(kOne, "float32", 0x1p-26)));
  ASSERT_EQ(kinds_of(faults), std::vector<std::string>{"lost"});
  EXPECT_NE(faults[0].text.find("step 7: fp32 loses the updates of model."), std::string::npos) << faults[0].text;
  EXPECT_NE(faults[0].text.find("norm.weight (100% of its elements)"), std::string::npos) << faults[0].text;
  EXPECT_NE(std::ranges::find(faults[0].parameters, "model.norm.weight"), faults[0].parameters.end());
  EXPECT_EQ(std::ranges::find(faults[0].parameters, kProjection), faults[0].parameters.end());
}

TEST_F(UpdatesOfARun, ARateOfZeroLosesNothing) {
  RunConfig c = measured(kOne, "float32", 1e-2);
  c.train.steps = 1;  // the only step is the last one of its schedule
  c.optimizer.warmup_steps = 0;
  c.optimizer.min_lr = 0;
  for (const ParameterUpdate& each : measure(c)) EXPECT_EQ(each.lost_share, 0) << each.name;
}

TEST_F(UpdatesOfARun, Bf16WeightsThatStandStillWhileTheirMastersMoveAreFound) {
  // In [2⁻⁶, 2⁻⁵), fp32 has a spacing of 2⁻²⁹ and bf16 one of 2⁻¹³. A step of 2⁻²⁹ from 0.02 moves the master by one.
  const auto plant = [](TrainState& state) {
    fill_masters(state, kProjection, 0.02f);
    fill_gradient(state, kProjection, 1);
  };
  const auto updates = measure(measured(kOne, "bfloat16", 0x1p-29), plant);
  const ParameterUpdate found = of(updates, kProjection);
  EXPECT_EQ(found.lost_share, 0);
  EXPECT_EQ(found.still_share, 1);
  EXPECT_EQ(found.updates_per_move, 0x1p16);
  for (const UpdateFault& fault : UpdateWatch().took(1, updates)) {
    const bool names = std::ranges::find(fault.parameters, kProjection) != fault.parameters.end();
    EXPECT_EQ(names, fault.kind == "still") << fault.text;
  }
  const auto healthy = measure(measured(kOne, "bfloat16", 0x1p-13), plant);
  EXPECT_EQ(of(healthy, kProjection).still_share, 0) << "a step of one spacing of bf16 moves every weight";
  EXPECT_EQ(of(healthy, kProjection).updates_per_move, 1);
}

TEST_F(UpdatesOfARun, SquaresOfGradientsThatUnderflowAreFoundWithBothOptimizersThatKeepThem) {
  for (const char* optimizer : {"adamw", "lamb"}) {
    for (const Degrees& degrees : {kOne, kLayouts[2], kLayouts[7]}) {
      RunConfig c = measured(degrees, "float32", 1e-2, optimizer);
      c.optimizer.max_grad_norm = 0;
      const auto updates = measure(c, [](TrainState& state) {
        fill_gradients(state, 1e-3f);
        fill_gradient(state, kExperts, 1e-25f);
      });
      for (const ParameterUpdate& each : updates)
        EXPECT_EQ(each.underflow_share, each.name == kExperts) << each.name << " on " << degrees.text();
      for (const UpdateFault& fault : UpdateWatch().took(1, updates)) {
        if (fault.kind != "underflow") continue;
        EXPECT_EQ(fault.parameters, std::vector<std::string>{kExperts});
      }
    }
  }
}

TEST_F(UpdatesOfARun, AnIterationThatDivergesIsFoundAndNothingElseIs) {
  RunConfig c = measured(kOne, "float32", 1e-2, "muon");
  for (const ParameterUpdate& each : measure(c)) {
    EXPECT_LE(each.orthogonality, 1.25) << each.name;  // 1.2024 bounds every singular value, and bf16 adds to that
    if (each.name == kProjection) {
      EXPECT_GT(each.orthogonality, 0.5);
    }
  }
  c.optimizer.newton_schulz_coefficients = {3.4445, -4.7750, 6};
  const auto updates = measure(c);
  EXPECT_FALSE(of(updates, kProjection).orthogonality <= 1.3) << of(updates, kProjection).orthogonality;
  const auto faults = UpdateWatch().took(1, updates);
  const auto diverged = std::ranges::find(faults, "diverged", &UpdateFault::kind);
  ASSERT_NE(diverged, faults.end());
  EXPECT_NE(diverged->text.find("Newton and Schulz's iteration diverges for model.layers."), std::string::npos)
      << diverged->text;
}

TEST_F(UpdatesOfARun, OneInfinityInAnyStateIsCountedOnceOnEveryLayout) {
  for (const char* optimizer : {"adamw", "muon"}) {
    for (const Degrees& degrees : {kOne, kLayouts[0], kLayouts[4], kLayouts[8]}) {
      const auto updates = measure(measured(degrees, "bfloat16", 1e-2, optimizer), [&](TrainState& state) {
        // The first element of the final norm, wherever it is owned.
        for (const BucketEntry& entry : state.model.parameters.table()) {
          if (entry.name != "model.norm.weight") continue;
          for (const auto& each : state.optimizer.set.optimizers()) {
            const auto at = each->parameters().state_begin({entry.flat_begin, entry.flat_begin + 1});
            if (!at || each->declaration().name != "adamw") continue;
            each->state("exp_avg_sq")[*at] = std::numeric_limits<float>::infinity();
          }
        }
      });
      for (const ParameterUpdate& each : updates)
        EXPECT_EQ(each.not_finite, each.name == "model.norm.weight") << each.name << " on " << degrees.text();
      const auto faults = UpdateWatch().took(3, updates);
      ASSERT_EQ(kinds_of(faults), std::vector<std::string>{"not_finite"}) << optimizer << " on " << degrees.text();
      EXPECT_NE(faults[0].text.find("model.norm.weight (1 values)"), std::string::npos) << faults[0].text;
    }
  }
}

// With one gradient for all elements of a parameter every layout makes the same update, bit for bit: counts are equal,
// and sums of moves differ by fp64's rounding of their at most 2¹³ terms.
TEST_F(UpdatesOfARun, EveryLayoutCountsAsOneRankDoes) {
  const auto plant = [](TrainState& state) { fill_gradients(state, 1e-3f); };
  const auto measured_on = [&](const Degrees& degrees) {
    RunConfig c = measured(degrees, "bfloat16", 3e-9);
    c.optimizer.max_grad_norm = 0;
    return measure(c, plant);
  };
  const auto expected = measured_on(kOne);
  EXPECT_GT(of(expected, kExperts).lost_share, 0);
  EXPECT_LT(of(expected, kExperts).lost_share, 0.5);
  for (const Degrees& degrees : kLayouts) {
    const auto found = measured_on(degrees);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      SCOPED_TRACE(expected[i].name + " on " + degrees.text());
      EXPECT_EQ(found[i].name, expected[i].name);
      EXPECT_EQ(found[i].lost_share, expected[i].lost_share);
      EXPECT_EQ(found[i].still_share, expected[i].still_share);
      const double moves = 1 / expected[i].updates_per_move;  // 0 if every update is lost
      EXPECT_NEAR(1 / found[i].updates_per_move, moves, 0x1p-39 * moves);
    }
  }
}

// Each optimizer on one layout.
TEST_F(UpdatesOfARun, MeasuringChangesNoBitAndOtherStepsMeasureNothing) {
  expect_same_bits_if_measured("adamw", kOne);
  expect_same_bits_if_measured("sgd", {1, 2, 1, "optimizer", 2, 1});
  expect_same_bits_if_measured("lamb", {1, 2, 1, "optimizer", 1, 2});
  expect_same_bits_if_measured("sophiag", {1, 1, 1, "none", 2, 1});
  expect_same_bits_if_measured("muon", kLayouts[3]);
}

TEST_F(TestAllUpdatesOfARun, MeasuringChangesNoBitAndOtherStepsMeasureNothing) {
  for (const char* optimizer : {"adamw", "sgd", "lamb", "sophiag", "muon"})
    for (const Degrees& degrees : {kOne, kLayouts[3], kLayouts[8]}) expect_same_bits_if_measured(optimizer, degrees);
}

TEST(UpdateWatch, AFaultIsToldOnceUntilOtherParametersHaveItOrItComesBack) {
  const ParameterUpdate healthy{.name = "a", .lost_share = 0.5}, bad{.name = "a", .lost_share = 0.75},
      worse{.name = "b", .lost_share = 1};
  UpdateWatch watch;
  EXPECT_TRUE(watch.took(1, {healthy}).empty());
  EXPECT_EQ(watch.took(2, {bad}).size(), 1U);
  EXPECT_TRUE(watch.took(3, {}).empty()) << "a step that measures nothing";
  EXPECT_TRUE(watch.took(4, {bad}).empty());
  const auto both = watch.took(5, {bad, worse});
  ASSERT_EQ(both.size(), 1U);
  EXPECT_EQ(both[0].parameters, (std::vector<std::string>{"b", "a"})) << "the worst first";
  EXPECT_TRUE(watch.took(6, {worse}).empty());
  EXPECT_TRUE(watch.took(7, {healthy}).empty());
  EXPECT_EQ(watch.took(8, {bad}).size(), 1U);
}

TEST(UpdateWatch, ThousandsOfParametersMakeOneLineAndFewNumbers) {
  std::vector<ParameterUpdate> updates;
  for (int i = 0; i < 5000; ++i) updates.push_back({.name = std::to_string(i), .not_finite = 1.0 + i});
  const auto faults = UpdateWatch().took(1, updates);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].parameters.size(), UpdateWatch::kMostNamed);
  EXPECT_NE(faults[0].text.find("4999 (5000 values), 4998 (4999 values)"), std::string::npos) << faults[0].text;
  EXPECT_NE(faults[0].text.find("and 4996 more"), std::string::npos) << faults[0].text;
  const UpdateMetrics largest = largest_of(updates);
  ASSERT_EQ(largest.not_finite.size(), UpdateMetrics::kMostListed);
  EXPECT_EQ(largest.not_finite[0].parameter, "4999");
  EXPECT_TRUE(largest.lost.empty());
}

TEST(UpdateWatch, ANormThatIsNoNumberIsTheWorst) {
  const auto faults =
      UpdateWatch().took(1, {{.name = "a", .orthogonality = 1e30}, {.name = "b", .orthogonality = NAN}});
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].parameters, (std::vector<std::string>{"b", "a"}));
}

}  // namespace
}  // namespace athanor::update_watch_test
