#include "saves/requests.h"

#include <gtest/gtest.h>

namespace athanor::requests_test {
namespace {

// The clock of a run that finds out how often to save, after steps of a second.
RunClock clock_after_steps() {
  RunConfig config;
  config.checkpoint.interval.is_auto = true;
  config.checkpoint.mtbf_hours = 1;
  config.train.stop_margin = std::string("0s");  // it looks for no job
  RunClock clock(config, 1);
  for (int i = 0; i < 3; ++i) clock.step_took(1, false);
  return clock;
}

// Returns what the clock logs about a save that stopped nothing: what it costs is what steps took longer.
std::string told_of_save(RunClock& clock) {
  testing::internal::CaptureStderr();
  clock.saved(0, 0.01);
  return testing::internal::GetCapturedStderr();
}

TEST(RunClock, AStepAfterASaveBeganCountsAsItsCostAlsoIfTheSaveIsOnDiskByThen) {
  for (const bool began : {true, false}) {
    for (const bool pending : {true, false}) {
      RunClock clock = clock_after_steps();
      if (began) clock.save_began();
      clock.step_took(5, pending);
      const std::string told = told_of_save(clock);
      EXPECT_NE(told.find(began || pending ? "one costs 4 s" : "one costs 0.001 s"), told.npos) << told;
    }
  }
}

TEST(RunClock, ASaveThatIsOnDiskAfterAStepCountsForThatStepOnly) {
  RunClock clock = clock_after_steps();
  clock.save_began();
  clock.step_took(2, false);
  clock.step_took(9, false);
  const std::string told = told_of_save(clock);
  EXPECT_NE(told.find("one costs 1 s"), told.npos) << told;
}

}  // namespace
}  // namespace athanor::requests_test
