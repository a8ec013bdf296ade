#include "run/run_report.h"

#include <gtest/gtest.h>

#include "metrics/step_lines.h"

namespace athanor::run_report_test {
namespace {

StepMetrics step(int64_t number) {
  StepMetrics m;
  m.step = number;
  m.loss = 3.25;
  m.tokens = 1000;
  m.step_s = 0.5;
  m.flops = 1e9;
  m.gemm_peak_flops = 1e10;
  return m;
}

RunConfig config() {
  RunConfig c;
  c.train.run_dir = "runs/x";
  c.checkpoint.model_interval = 10;
  return c;
}

TEST(RunReport, ACompleteRunStatesItsSpeedItsLossesItsModelAndWhatComesNext) {
  RunReport report;
  for (int64_t i = 1; i <= 10; ++i) {
    StepMetrics m = step(i);
    if (i % 5 == 0) m.validation_loss = i == 5 ? 3.0 : 3.5;
    report.add(m);
  }
  EXPECT_EQ(
      report.lines(config(), 10),
      (std::vector<std::string>{
          "complete: 10 steps and 10,000 tokens in 0:05 (2,000 tokens/s, MFU 20.00%)",
          "validation loss 3.5000 at step 10; the lowest was 3.0000 at step 5",
          "the model: runs/x/models/step-00000010",
          "next: athanor plot runs/x, athanor generate runs/x --prompt \"...\", or athanor export runs/x --out FOLDER",
      }));
}

TEST(RunReport, ARunThatSavedNothingSaysSoAndRecommendsNothingThatNeedsItsWeights) {
  RunReport report;
  report.add(step(10));
  RunConfig nothing = config();
  nothing.checkpoint.interval = nothing.checkpoint.model_interval = 0;
  const auto lines = report.lines(nothing, 10);
  EXPECT_EQ(lines[1],
            "nothing was saved: checkpoint.interval and checkpoint.model_interval are 0, so the weights are lost");
  EXPECT_EQ(lines[2], "next: athanor plot runs/x");
}

TEST(RunReport, CommandsQuotePathsThatAShellWouldSplit) {
  RunReport report;
  report.add(step(10));
  RunConfig spaced = config();
  spaced.train.run_dir = "my runs/x";
  EXPECT_EQ(
      report.lines(spaced, 10).back(),
      "next: athanor plot 'my runs/x', athanor generate 'my runs/x' --prompt \"...\", or athanor export 'my runs/x' "
      "--out FOLDER");
}

TEST(RunReport, StepsOfEarlierAttemptsAreCountedApart) {
  RunReport report;
  report.add(step(10));
  EXPECT_NE(report.lines(config(), 10).front().find("; with earlier attempts 10 steps"), std::string::npos);
}

TEST(RunReport, ARunThatWasCompleteStatesHowToContinue) {
  EXPECT_EQ(RunReport().lines(config(), 200),
            (std::vector<std::string>{"runs/x is complete at step 200: raise train.steps to continue, or name another "
                                      "train.run_dir to begin a new run"}));
}

TEST(StepLines, TheMovingLineHasTheStepTheLossTheSpeedAndTheTimes) {
  StepMetrics m = step(120);
  m.seconds_left = 340;
  EXPECT_EQ(moving_line(m, 440, 130), "step 120/440  loss 3.2500  2,000 tokens/s  2:10 elapsed, 5:40 left");
  m.seconds_left = {};
  EXPECT_EQ(moving_line(m, 440, 1), "step 120/440  loss 3.2500  2,000 tokens/s  0:01 elapsed");
}

}  // namespace
}  // namespace athanor::run_report_test
