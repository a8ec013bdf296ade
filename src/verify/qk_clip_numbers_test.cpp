// What a step reports of QK-clip: on every layout the same logit, layer and heads.

#include <gtest/gtest.h>

#include <mutex>

#include "saves/testing/ranks.h"
#include "verify/noise.h"

namespace athanor::qk_clip_numbers_test {
namespace {

class QkClipNumbers : public Ranks {
 protected:
  // The checks of a run refuse QK-clip for models with experts, which all normalise queries and keys. Their layouts
  // differ from those of dense models all the same.
  RunConfig clipped(const Degrees& degrees, double threshold) const {
    RunConfig c = config(degrees, "clipped", "float32");
    c.optimizer.qk_clip = threshold;
    c.train.micro_batch_size = 12 / (degrees.replicate * degrees.shard * degrees.pipeline);
    return c;
  }
  // What all ranks report of the first two steps.
  static std::vector<LargestLogit> numbers_of(const RunConfig& config) {
    std::mutex mutex;
    std::vector<std::vector<LargestLogit>> all;
    on_ranks(config, [&](TrainState& state) {
      initialize(state);
      std::vector<LargestLogit> own;
      for (int64_t step = 0; step < 2; ++step) own.push_back(train_step(state, batch(step)).largest_logit.value());
      const std::lock_guard lock(mutex);
      all.push_back(own);
    });
    for (const auto& own : all) EXPECT_EQ(own, all[0]);
    return all[0];
  }

  void expect_same_on(const std::vector<Degrees>& layouts) const;
};
class TestAllQkClipNumbers : public QkClipNumbers {};

void QkClipNumbers::expect_same_on(const std::vector<Degrees>& layouts) const {
  const LargestLogit unclipped = numbers_of(clipped(kOne, 1e6))[0];
  const double largest = unclipped.value;
  EXPECT_GT(largest, 0);
  EXPECT_EQ(unclipped.clipped_heads, 0);
  // A threshold that some heads of the model are above, and not all.
  double threshold = 0.8 * largest;
  std::vector<LargestLogit> expected = numbers_of(clipped(kOne, threshold));
  for (; expected[0].clipped_heads == 3 * 4; expected = numbers_of(clipped(kOne, threshold))) threshold *= 1.02;
  EXPECT_GT(expected[0].clipped_heads, 0);
  for (const Degrees& degrees : layouts) {
    const RunConfig config = clipped(degrees, threshold);
    const auto found = numbers_of(config);
    for (size_t step = 0; step < found.size(); ++step) {
      SCOPED_TRACE(fmt::format("{}, step {}", degrees.text(), step + 1));
      // A logit is rounded as a loss is, and less often.
      const double bound = Noise(config, 1).loss();
      EXPECT_NEAR(found[step].value, expected[step].value, bound * expected[step].value);
      EXPECT_EQ(found[step].layer, expected[step].layer);
      EXPECT_EQ(found[step].clipped_heads, expected[step].clipped_heads);
    }
  }
}

// Every way of sharding, and every degree of each axis.
TEST_F(QkClipNumbers, AreTheSameOnEveryLayoutAndOnAllOfItsRanks) {
  expect_same_on({kLayouts[4], kLayouts[5], kLayouts[7], kLayouts[8], kLayouts[9]});
}

TEST_F(TestAllQkClipNumbers, AreTheSameOnEveryLayoutAndOnAllOfItsRanks) { expect_same_on(kLayouts); }

TEST_F(QkClipNumbers, AreThereOnlyWithQkClipAndOnlyOfStepsThatAreApplied) {
  RunConfig plain = clipped(kOne, 0), with = clipped(kOne, 1e6);
  TrainState without_clip(plain, {});
  initialize(without_clip);
  EXPECT_FALSE(train_step(without_clip, batch(0)).largest_logit.has_value());
  TrainState state(with, {});
  initialize(state);
  EXPECT_FALSE(train_step(state, batch(0), {.grad_norm = 0}).largest_logit.has_value());
}

}  // namespace
}  // namespace athanor::qk_clip_numbers_test
