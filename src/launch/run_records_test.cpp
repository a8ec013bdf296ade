#include "launch/run_records.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <future>

namespace athanor::launch::run_records_test {
namespace fs = std::filesystem;

struct FirstStep : testing::Test {
  FirstStep() {
    std::string name = (fs::temp_directory_path() / "athanor-first-step-XXXXXX").string();
    run_dir = ::mkdtemp(name.data());
  }
  ~FirstStep() override { fs::remove_all(run_dir); }
  void add(const std::string& line) const { std::ofstream(run_dir / "metrics.jsonl", std::ios::app) << line << "\n"; }

  fs::path run_dir;
};

TEST_F(FirstStep, IsTheFirstOfALaterAttempt) {
  RunRecords before;
  before.attempt = 2;
  EXPECT_FALSE(first_step_time_s(run_dir, before));
  add(R"({"attempt": 2, "step": 9, "time": 100.0})");
  add(R"({"attempt": 3, "step": 0, "time": 150.0})");
  add("half a li");
  EXPECT_FALSE(first_step_time_s(run_dir, before));
  add(R"({"attempt": 3, "step": 10, "time": 200.5})");
  add(R"({"attempt": 3, "step": 11, "time": 201.5})");
  EXPECT_EQ(first_step_time_s(run_dir, before), 200.5);
}

TEST_F(FirstStep, IsToldOnceWhenItComes) {
  std::promise<double> told;
  const FirstStepWatch watch(run_dir, std::chrono::milliseconds(1), [&](double time_s) { told.set_value(time_s); });
  add(R"({"attempt": 1, "step": 1, "time": 7.5})");
  add(R"({"attempt": 1, "step": 2, "time": 8.5})");
  EXPECT_EQ(told.get_future().get(), 7.5);
}

TEST_F(FirstStep, TheJobsStartIsSlurmsIfItIsKnown) {
  Surroundings here;
  EXPECT_EQ(job_start(here, 5).time_s, 5);
  here.variables["SLURM_JOB_START_TIME"] = "1790000000";
  EXPECT_EQ(job_start(here, 5).time_s, 1790000000);
  here.variables["SLURM_JOB_START_TIME"] = "yesterday";
  EXPECT_EQ(job_start(here, 5).time_s, 5);
}

}  // namespace athanor::launch::run_records_test
