#include "launch/job_script.h"

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"

namespace athanor::launch {
namespace job_script_test {

TEST(JobScript, ThatOfSlurmIsTheExampleWithLaunchInItsMiddle) {
  const auto text = job_script(
      Scheduler::kSlurm, {64, 12, {"athanor", "launch", "--ppn", "12"}, {"athanor", "train", "my run.toml"}, false});
  EXPECT_SAYS(text, "\n#SBATCH --nodes=64\n#SBATCH --ntasks-per-node=12\n#SBATCH --exclusive ");
  EXPECT_SAYS(text, "\nlaunch=(athanor launch --ppn 12)\ncommand=(athanor train 'my run.toml')\n");
  EXPECT_SAYS(text, "\n\"${launch[@]}\" -- \"${command[@]}\"\ncode=$?\n");
  EXPECT_SAYS(text, "scontrol requeue \"$SLURM_JOB_ID\"");
  for (const char* gone : {"$LAUNCH", "$CONFIG", "OPTIONS", "cpus-per-task", "SRUN_CPUS"})
    EXPECT_EQ(text.find(gone), text.npos) << gone;
}

TEST(JobScript, ThatOfPbsSubmitsItselfAgain) {
  const auto text =
      job_script(Scheduler::kPbs, {3, {}, {"athanor", "launch"}, {"athanor", "train", "run.toml"}, false});
  EXPECT_SAYS(text, "\n#PBS -l select=3:ncpus=104\n");
  EXPECT_SAYS(text, "\nSCRIPT=${SCRIPT:-athanor.pbs} ");
  EXPECT_SAYS(text, "qsub -v SCRIPT \"$SCRIPT\"");
  for (const char* gone : {"$LAUNCH", "$CONFIG", "OPTIONS", "PBS_NODEFILE\")"})
    EXPECT_EQ(text.find(gone), text.npos) << gone;
}

TEST(JobScript, WithResubmitOnlyLaunchSubmitsTheNextJob) {
  for (const auto scheduler : {Scheduler::kSlurm, Scheduler::kPbs}) {
    const auto text = job_script(scheduler, {{}, {}, {"athanor", "launch", "--resubmit"}, {"train", "a.toml"}, true});
    EXPECT_SAYS(text, "\nlaunch=(athanor launch --resubmit)\n");
    EXPECT_EQ(text.find("\nlaunch+=(--job-script \"$SCRIPT\")\n") != text.npos, scheduler == Scheduler::kPbs);
    EXPECT_TRUE(text.ends_with("code=$?\n\nexit $code\n")) << text;
    for (const char* gone : {"scontrol requeue", "qsub -v SCRIPT \"$SCRIPT\"", "esac"})
      EXPECT_EQ(text.find(gone), text.npos) << gone;
  }
}

TEST(JobScript, WhatAUserGivesIsQuoted) {
  for (const auto scheduler : {Scheduler::kSlurm, Scheduler::kPbs})
    EXPECT_SAYS(
        job_script(scheduler, {{}, {}, {"athanor", "launch"}, {"train", "$(id); `id`", "it's", "line\nbreak"}, false}),
        "\ncommand=(train '$(id); `id`' 'it'\\''s' 'line\nbreak')\n");
}

}  // namespace job_script_test
}  // namespace athanor::launch
