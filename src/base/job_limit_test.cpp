#include "base/job_limit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace athanor::job_limit_test {
namespace {

class JobLimits : public ::testing::Test {
 protected:
  JobLimits() { clear(); }
  ~JobLimits() override { clear(); }
  static void clear() {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_JOB_END_TIME", "PBS_JOBID"}) ::unsetenv(name);
  }
  std::optional<JobLimit> limit(const std::string& answer) {
    return find_job_limit([&](const std::string& command) {
      command_ = command;
      return answer;
    });
  }
  static double local_time(int year, int month, int day, int hour, int minute, int second) {
    std::tm time{};
    time.tm_year = year - 1900, time.tm_mon = month - 1, time.tm_mday = day;
    time.tm_hour = hour, time.tm_min = minute, time.tm_sec = second, time.tm_isdst = -1;
    return static_cast<double>(std::mktime(&time));
  }

  std::string command_;
};

TEST_F(JobLimits, WithoutAJobNothingIsAsked) {
  EXPECT_FALSE(limit("EndTime=2026-11-22T10:00:00 "));
  EXPECT_EQ(command_, "");
}

TEST_F(JobLimits, SlurmTellsTheEndInTheEnvironmentOrThroughScontrol) {
  ::setenv("SLURM_JOB_ID", "123", 1);
  const auto asked = limit("JobId=123 TimeLimit=12:00:00 EndTime=2026-11-22T10:20:30 Deadline=N/A\n");
  ASSERT_TRUE(asked);
  EXPECT_EQ(command_, "scontrol -o show job '123'");
  EXPECT_EQ(asked->job, "Slurm job 123");
  EXPECT_EQ(asked->ends_at_s, local_time(2026, 11, 22, 10, 20, 30));
  ::setenv("SLURM_JOB_END_TIME", "1795342830", 1);
  EXPECT_EQ(limit("").value().ends_at_s, 1795342830);
}

TEST_F(JobLimits, AJobWithoutALimitHasNone) {
  ::setenv("SLURM_JOB_ID", "123", 1);
  EXPECT_FALSE(limit("JobId=123 TimeLimit=UNLIMITED EndTime=2027-11-22T10:20:30 \n"));
  EXPECT_FALSE(limit("JobId=123 TimeLimit=12:00:00 EndTime=Unknown \n"));
  EXPECT_FALSE(limit(""));
}

TEST_F(JobLimits, PbsTellsTheStartAndTheWalltime) {
  ::setenv("PBS_JOBID", "77.server", 1);
  const auto asked =
      limit("Job Id: 77.server\n    Resource_List.walltime = 36:00:01\n    stime = Sun Nov 22 10:20:30 2026\n");
  ASSERT_TRUE(asked);
  EXPECT_EQ(command_, "qstat -f '77.server'");
  EXPECT_EQ(asked->ends_at_s, local_time(2026, 11, 22, 10, 20, 30) + 36 * 3600 + 1);
  EXPECT_FALSE(limit("    Resource_List.walltime = 36:00:01\n"));
}

TEST_F(JobLimits, AnIdThatIsNoneOfASchedulerIsNotPutIntoACommand) {
  ::setenv("SLURM_JOB_ID", "1'; rm x'", 1);
  EXPECT_FALSE(limit("EndTime=2026-11-22T10:00:00 "));
  EXPECT_EQ(command_, "");
}

TEST_F(JobLimits, ACommandThatFailsSaysNothing) {
  EXPECT_EQ(output_of("echo two words"), "two words\n");
  EXPECT_EQ(output_of("sh -c 'echo lost; exit 3'"), "");
  EXPECT_EQ(output_of("no-such-program"), "");
}

}  // namespace
}  // namespace athanor::job_limit_test
