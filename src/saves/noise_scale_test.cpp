// Tests that the parts of a step's gradient are measured in every layout, and that this changes no bit.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <mutex>

#include "saves/testing/ranks.h"
#include "train/testing/steps.h"

namespace athanor::noise_scale_test {
namespace {

class NoiseOfRanks : public Ranks {
 protected:
  RunConfig measured(const Degrees& degrees, int64_t micro_batch_size = 1) const {
    RunConfig c = config(degrees, "noise", "float32");
    c.metrics.noise_scale_interval = 1;
    c.train.micro_batch_size = micro_batch_size;
    c.parallelism.sequence_parallel = false;
    return c;
  }

  // The microbatch with which a step has as few of them as stages, on one data rank at least two.
  static int64_t fewest_calls(const Degrees& d) {
    const int data = d.replicate * d.shard;
    return 12 / data / std::max(d.pipeline, data == 1 ? 2 : 1);
  }

  struct Measured {
    std::vector<PartSquares> groups;
    double grad_norm = 0;
  };

  // The first step on a batch, of which all ranks must tell the same.
  static Measured measure(const RunConfig& config, const Batch& batch) {
    std::vector<Measured> all;
    std::mutex one;
    on_ranks(config, [&](TrainState& state) {
      initialize(state);
      const StepReport report = compute_gradients(state, batch);
      const std::lock_guard lock(one);
      all.push_back({report.noise, report.grad_norm});
    });
    for (const Measured& each : all) {
      EXPECT_EQ(each.groups.size(), 2U);
      EXPECT_EQ(each.groups[0].parts, all[0].groups[0].parts);
    }
    return all[0];
  }

  // Sequences `from` to `from` + 11 of twelve that follow each other in a circle, each `equal` times if that is
  // above 1.
  static Batch turned(int64_t from, int64_t equal = 1) {
    const Batch straight = batch(3);
    Batch turned = straight;
    for (int64_t b = 0; b < 12; ++b)
      std::copy_n(straight.sequence((b + from) % 12 % (12 / equal)), kSeqLen, turned.tokens.begin() + b * kSeqLen);
    return turned;
  }

  void expect_no_noise_of_equal_parts(const std::vector<Degrees>& layouts) const;
};
class TestAllNoiseOfRanks : public NoiseOfRanks {};

// A gradient's element is a sum of at most 12 · 16 tokens' products, each through 3 layers with sums of at most 64
// terms one after the other, about ten a layer; its relative error in fp32, and twice that of a square, in the mean
// over elements.
constexpr double kBound = 2 * (12 * 16 + 3 * 10 * 64) * 0x1p-24;

double sum(const auto& m, double PartSquares::*what) { return m.groups[0].*what + m.groups[1].*what; }

TEST_F(NoiseOfRanks, TheWholeIsTheNormWhereAllParametersAreCounted) {
  for (const Degrees& d : {kOne, Degrees{1, 2, 1, "none"}, Degrees{1, 4, 2, "ep_aware"},
                           Degrees{2, 2, 2, "hierarchical"}, Degrees{1, 1, 1, "none", 1, 3}}) {
    const Measured found = measure(measured(d), turned(0));
    EXPECT_NEAR(sum(found, &PartSquares::whole), found.grad_norm * found.grad_norm,
                1e-12 * found.grad_norm * found.grad_norm)
        << d.text();
  }
}

TEST_F(NoiseOfRanks, PartsAreTheGradientsOfTheDataRanksWhicheverWayTheyAreSummed) {
  // One rank measures its first half; with the halves exchanged the other. Both together are the parts of two ranks.
  const Measured first = measure(measured(kOne, 6), turned(0)), second = measure(measured(kOne, 6), turned(6));
  const double expected = (sum(first, &PartSquares::parts) + sum(second, &PartSquares::parts)) / 2;
  for (const Degrees& d : {Degrees{1, 2, 1, "none"}, Degrees{1, 2, 1, "optimizer"}, Degrees{1, 2, 1, "ep_aware"},
                           Degrees{2, 1, 1, "hierarchical"}, Degrees{1, 2, 1, "ep_aware", 1, 3}}) {
    const Measured found = measure(measured(d), turned(0));
    EXPECT_NEAR(sum(found, &PartSquares::parts), expected, kBound * expected) << d.text();
    EXPECT_EQ(found.groups[0].num_parts, 2);
  }
  EXPECT_GT(std::abs(sum(first, &PartSquares::parts) - sum(second, &PartSquares::parts)), 10 * kBound * expected)
      << "the halves differ, or this test shows nothing";
}

void NoiseOfRanks::expect_no_noise_of_equal_parts(const std::vector<Degrees>& layouts) const {
  for (const Degrees& d : layouts) {
    const int64_t parts = d.replicate * d.shard > 1 ? d.replicate * d.shard : 12;
    const Measured found = measure(measured(d, fewest_calls(d)), turned(0, parts));
    const NoiseEstimate noise = estimate_noise(found.groups, 12);
    EXPECT_NEAR(noise.variance, 0, 12 * kBound * noise.gradient_squared) << d.text();
    EXPECT_GT(noise.gradient_squared, 0) << d.text();
    const Measured other = measure(measured(d, fewest_calls(d)), turned(0));
    EXPECT_GT(estimate_noise(other.groups, 12).variance, 100 * kBound * noise.gradient_squared) << d.text();
  }
}

// Every way of sharding, and every degree of each axis.
TEST_F(NoiseOfRanks, EqualPartsHaveNoNoiseInAnyLayout) {
  expect_no_noise_of_equal_parts({kOne, kLayouts[4], kLayouts[7], kLayouts[8], kLayouts[9]});
}

TEST_F(TestAllNoiseOfRanks, EqualPartsHaveNoNoiseInAnyLayout) {
  expect_no_noise_of_equal_parts({kOne, kLayouts[1], kLayouts[2], kLayouts[3], kLayouts[4], kLayouts[6], kLayouts[7],
                                  kLayouts[8], kLayouts[9], kLayouts[10]});
}

TEST_F(NoiseOfRanks, ExpertsOfWhichThereIsOneCopyAreLeftOut) {
  const Measured found = measure(measured({1, 2, 2, "ep_aware"}), turned(0));
  EXPECT_EQ(found.groups[1].num_parts, 1);
  EXPECT_EQ(found.groups[1].whole, 0);
  EXPECT_LT(found.groups[0].whole, found.grad_norm * found.grad_norm);
}

TEST_F(NoiseOfRanks, MeasuringChangesNoBitAndNoOtherStepMeasures) {
  for (const Degrees& d : {kOne, kLayouts[3], kLayouts[8]}) {
    std::vector<Tensor> weights;
    for (const int64_t interval : {0, 2}) {
      RunConfig c = measured(d, fewest_calls(d));
      c.metrics.noise_scale_interval = interval;
      std::mutex one;
      on_ranks(c, [&](TrainState& state) {
        initialize(state);
        for (int64_t step = 1; step <= 3; ++step) {
          const StepReport report = train_step(state, batch(step));
          const std::lock_guard lock(one);
          EXPECT_EQ(report.noise.empty(), interval == 0 || step % 2 != 0) << step;
        }
        state.model.gatherer.wait_all();
        const std::lock_guard lock(one);
        if (state.model.mesh.is_first()) weights.push_back(state.model.parameters.compute().clone());
      });
    }
    EXPECT_TRUE(at::equal(weights[0], weights[1])) << d.text();
  }
}

}  // namespace
}  // namespace athanor::noise_scale_test
