#include "metrics/metrics_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/files.h"
#include "base/log.h"

namespace athanor::metrics_log_test {
namespace {

namespace fs = std::filesystem;

StepMetrics metrics_of(int64_t step, double loss) {
  StepMetrics m;
  m.step = step;
  m.loss = loss;
  return m;
}

class MetricsLogTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override {
    log::also_to_file("");
    fs::remove_all(folder_);
  }

  fs::path lines_file() const { return folder_ / "metrics.jsonl"; }
  void write_steps(MetricsLog& log, int64_t first, int64_t last, double loss) const {
    for (int64_t step = first; step <= last; ++step) log.write(metrics_of(step, loss));
  }
  // Returns "1:9 2:9" for the steps and losses in the file. Each of its lines must be whole.
  std::string told() const {
    std::istringstream text(read_file(lines_file()));
    std::string told;
    for (std::string line; std::getline(text, line);) {
      const auto json = nlohmann::json::parse(line);
      if (!told.empty()) told += ' ';
      told += json["step"].dump() + ":" + std::to_string(json["loss"].get<int>());
    }
    return told;
  }
  int64_t num_event_files() const {
    return std::distance(fs::directory_iterator(folder_ / "tensorboard"), fs::directory_iterator());
  }
  int num_warnings() const {
    std::istringstream text(read_file(folder_ / "log"));
    int count = 0;
    for (std::string line; std::getline(text, line);) count += line.find(" W ") != std::string::npos;
    return count;
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("athanor_metrics_log_" + std::to_string(::getpid()));
};

TEST_F(MetricsLogTest, EachStepIsALineThatIsThereAtOnce) {
  MetricsLog log(folder_, false, 0);
  log.write(metrics_of(1, 9));
  EXPECT_EQ(told(), "1:9");
  log.write(metrics_of(2, 8));
  EXPECT_EQ(told(), "1:9 2:8");
  EXPECT_FALSE(fs::exists(folder_ / "tensorboard"));
}

TEST_F(MetricsLogTest, ARunThatResumesTellsEveryStepOnce) {
  MetricsLog cut(folder_, true, 0);
  write_steps(cut, 1, 5, 9);
  MetricsLog resumed(folder_, true, 3);
  EXPECT_EQ(told(), "1:9 2:9 3:9");
  write_steps(resumed, 4, 6, 8);
  EXPECT_EQ(told(), "1:9 2:9 3:9 4:8 5:8 6:8");
  EXPECT_EQ(num_event_files(), 2);
}

TEST_F(MetricsLogTest, ARunThatStartsAnewDropsWhatItHadTold) {
  MetricsLog cut(folder_, false, 0);
  write_steps(cut, 1, 2, 9);
  MetricsLog again(folder_, false, 0);
  EXPECT_EQ(read_file(lines_file()), "");
}

TEST_F(MetricsLogTest, ATornLastLineIsDropped) {
  {
    MetricsLog cut(folder_, false, 0);
    write_steps(cut, 1, 2, 9);
  }
  std::ofstream(lines_file(), std::ios::app) << R"({"step":3,"loss")";
  MetricsLog resumed(folder_, false, 7);
  EXPECT_EQ(told(), "1:9 2:9");
  resumed.write(metrics_of(8, 8));
  EXPECT_EQ(told(), "1:9 2:9 8:8");
}

TEST_F(MetricsLogTest, ALineThatIsWholeButNoStepAtTheEndIsDroppedToo) {
  std::ofstream(lines_file()) << "{\"step\":1,\"loss\":9}\n{\"step\":2,\"lo\n\n{\"loss\":9}\n[1]\n";
  MetricsLog resumed(folder_, false, 7);
  EXPECT_EQ(told(), "1:9");
}

TEST_F(MetricsLogTest, AFileWithoutOneWholeLineBecomesEmpty) {
  std::ofstream(lines_file()) << "{\"step\":1";
  MetricsLog resumed(folder_, false, 7);
  EXPECT_EQ(read_file(lines_file()), "");
}

TEST_F(MetricsLogTest, AFullDiskIsWarnedOfOnceAndEventsGoOn) {
  fs::create_symlink("/dev/full", lines_file());
  log::also_to_file(folder_ / "log");
  MetricsLog log(folder_, true, 0);
  write_steps(log, 1, 3, 9);
  EXPECT_EQ(num_warnings(), 1);
  EXPECT_NE(read_file(folder_ / "log").find("metrics.jsonl: No space left on device"), std::string::npos);
  EXPECT_GT(fs::file_size(fs::directory_iterator(folder_ / "tensorboard")->path()), 500u);
}

TEST_F(MetricsLogTest, WhatCannotBeOpenedIsTriedAgainAtEachStep) {
  fs::create_directory(lines_file());
  std::ofstream(folder_ / "tensorboard") << "a file";
  log::also_to_file(folder_ / "log");
  MetricsLog log(folder_, true, 0);
  log.write(metrics_of(1, 9));
  EXPECT_EQ(num_warnings(), 1);
  fs::remove(lines_file());
  fs::remove(folder_ / "tensorboard");
  log.write(metrics_of(2, 8));
  EXPECT_EQ(told(), "2:8");
  EXPECT_EQ(num_event_files(), 1);
}

// tests/interop/test_tensorboard.py passes a folder and reads there what this test leaves: a run that was killed after
// step 5, and resumed from its checkpoint at step 3 with other losses.
TEST_F(MetricsLogTest, ARunCutAndResumedLeavesEventsForTensorBoard) {
  const char* named = std::getenv("ATHANOR_WRITE_EVENTS");
  const fs::path folder = named ? fs::path(named) : folder_;
  const auto told_step = [](int64_t step, double loss) {
    StepMetrics m = metrics_of(step, loss);
    m.lr = 4e-5;
    m.tokens = 1024;
    m.step_s = 0.5;
    m.routers = {{.load_max_over_mean = 1.25}, {.load_max_over_mean = 2.5}};
    if (step % 2 == 0) m.validation_loss = loss + 1;
    return m;
  };
  MetricsLog cut(folder, true, 0);
  for (int64_t step = 1; step <= 5; ++step) cut.write(told_step(step, 9 - static_cast<double>(step)));
  MetricsLog resumed(folder, true, 3);
  for (int64_t step = 4; step <= 6; ++step) resumed.write(told_step(step, 0.5 * static_cast<double>(step)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "tensorboard"), fs::directory_iterator()), 2);
}

}  // namespace
}  // namespace athanor::metrics_log_test
