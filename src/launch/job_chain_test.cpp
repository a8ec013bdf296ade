#include "launch/job_chain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "launch/testing/recorded_machine.h"

namespace athanor::launch {
namespace job_chain_test {

constexpr const char* kDetails =
    "JobId=7 JobName=night run UserId=me(1) Account=(null) QOS=normal TimeLimit=1-00:00:00 Partition=main "
    "MinNodes=9 NumNodes=4 NumCPUs=16 WorkDir=/home/me/runs StdOut=/x\n";

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

TEST(JobChain, TheNextJobHasWhatTheCommandLineOfSbatchGaveThisOneAndNothingOfItsEnvironment) {
  Surroundings here;
  here.variables = {{"SLURM_JOB_ID", "7"}, {"PATH", "/none"}, {"SLURM_MEM_PER_NODE", "1"}, {"SLURM_CONF", "/c"}};
  const auto words = submit_words(Scheduler::kSlurm, "7", kDetails, "/a/job-script", here);
  EXPECT_EQ(
      (std::vector<std::string>(words.begin(), words.begin() + 7)),
      (std::vector<std::string>{"env", "-u", "SLURM_JOB_ID", "-u", "SLURM_MEM_PER_NODE", "sbatch", "--parsable"}));
  for (const char* word : {"--dependency=afterany:7", "--nodes=4", "--time=1-00:00:00", "--partition=main",
                           "--qos=normal", "--chdir=/home/me/runs"})
    EXPECT_TRUE(has(words, word)) << word;
  EXPECT_EQ(words.back(), "/a/job-script");
  EXPECT_TRUE(std::ranges::none_of(words, [](const auto& word) { return word.starts_with("--account"); }));
  EXPECT_EQ(submit_words(Scheduler::kPbs, "7.server", "", "run.pbs", here),
            (std::vector<std::string>{"qsub", "-W", "depend=afterany:7.server", "run.pbs"}));
}

TEST(JobChain, AJobKnowsItsNumberAndIfTheOneBeforeItTookNoStep) {
  const std::string lines = R"({"job": "1", "number": 1, "step": null, "next": "2"})"
                            "\n"
                            R"({"job": "2", "number": 2, "step": 10, "next": "3"})"
                            "\n"
                            R"({"job": "3", "num)";
  EXPECT_EQ(place_in_chain(lines, "9", 5).number, 1);
  EXPECT_EQ(place_in_chain(lines, "3", 12).number, 3);
  EXPECT_FALSE(place_in_chain(lines, "3", 11).was_idle);
  EXPECT_TRUE(place_in_chain(lines, "3", 10).was_idle);
  EXPECT_FALSE(place_in_chain(lines, "2", 0).was_idle);  // nothing is known of the start of job 1
  EXPECT_EQ(place_in_chain(lines, "2", 10).next, "3");   // job 2 was started again, and has its successor
  EXPECT_EQ(place_in_chain(lines + "\n"
                                   R"({"job": "2", "next": "3", "cancelled": true})",
                           "2", 10)
                .next,
            "");
}

TEST(JobChain, ALimitOfTimeContinuesAndAUserDoesNot) {
  const auto continues = [](Cause cause, bool was_told, bool had_limit, std::optional<double> left_s) {
    return continues_in_next_job({cause, was_told, had_limit, left_s});
  };
  EXPECT_TRUE(continues(Cause::kStopped, false, true, 300));
  EXPECT_TRUE(continues(Cause::kStopped, false, true, {}));  // train.stop_after
  EXPECT_TRUE(continues(Cause::kWalltime, false, false, -3));
  EXPECT_TRUE(continues(Cause::kUserCancel, true, false, 200));  // the scheduler's warning
  EXPECT_FALSE(continues(Cause::kUserCancel, true, false, 7200));
  EXPECT_FALSE(continues(Cause::kStopped, true, false, {}));
  EXPECT_FALSE(continues(Cause::kSuccess, false, false, 7200));
  EXPECT_FALSE(continues(Cause::kSuccess, true, false, 3));
}

TEST(JobChain, FailuresContinueIfTimeOrOtherNodesMayCureThem) {
  for (const CauseRow& row : cause_table()) {
    if (row.verdict == Verdict::kSuccess || row.verdict == Verdict::kStopped || row.verdict == Verdict::kWalltime)
      continue;
    EXPECT_EQ(continues_in_next_job({row.cause, false, false, 7200}), row.time != Cure::kNo || row.swap != Cure::kNo)
        << row.kind;
  }
}

class Chain : public RecordedMachine {
 protected:
  void SetUp() override {
    RecordedMachine::SetUp();
    allocation_ = {Scheduler::kSlurm, "SLURM_JOB_ID is 7", "7", {{"n1", 0}}, "SLURM_JOB_NODELIST"};
    put_program(here_, "scontrol",
                "case $* in 'write batch_script 7 -') printf '#!/bin/bash\\nathanor launch\\n';; esac");
    put_program(here_, "sbatch",
                "echo \"$@\" >>" + file("calls") + "; tail -1 \"$(eval echo \\${$#})\" >>" + file("calls") +
                    "; echo '8;cluster'");
    put_program(here_, "scancel", "echo \"$@\" >>" + file("cancelled"));
    here_.variables["PATH"] += ":/usr/bin:/bin";
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string text(const std::string& name) const {
    return std::filesystem::exists(folder_ / name) ? read_file(folder_ / name) : "";
  }

  Surroundings here_;
  Allocation allocation_;
};

TEST_F(Chain, AJobSubmitsItsOwnScriptOnceAndCancelsItIfNoneShouldFollow) {
  JobChain chain(allocation_, here_, {});
  EXPECT_EQ(text("calls"), "");
  chain.look(folder_, 3, false);
  chain.look(folder_, 3, true);
  const std::string submitted = text("calls");
  EXPECT_SAYS(submitted, "--dependency=afterany:7");
  EXPECT_TRUE(submitted.ends_with("athanor launch\n")) << submitted;
  EXPECT_EQ(std::ranges::count(submitted, '\n'), 2);
  EXPECT_EQ(place_in_chain(text("jobs.jsonl"), "8", 3).number, 2);
  chain.end(folder_, true, "");
  EXPECT_EQ(text("cancelled"), "");
  chain.end(folder_, false, "complete");
  chain.look(folder_, 3, true);
  EXPECT_EQ(text("cancelled"), "8\n");
  EXPECT_EQ(text("calls"), submitted);
  EXPECT_EQ(place_in_chain(text("jobs.jsonl"), "7", 3).next, "");
}

TEST_F(Chain, TheJobIsFoundAmongTheMessagesOfASite) {
  put_program(here_, "sbatch",
              "echo 'sbatch: warning: billed to project 5' >&2; echo '8;cluster'; echo 'queue 3 is busy'");
  JobChain chain(allocation_, here_, {});
  chain.look(folder_, 3, false);
  EXPECT_EQ(place_in_chain(text("jobs.jsonl"), "8", 3).number, 2);
}

TEST_F(Chain, AnAnswerWithoutAJobIsNone) {
  for (const char* answer : {"echo error", "echo 12 jobs are waiting", "exit 1", ":", "echo \\$(id)"}) {
    put_program(here_, "sbatch", answer);
    JobChain chain(allocation_, here_, {});
    chain.look(folder_, 3, false);
    EXPECT_EQ(text("jobs.jsonl"), "") << answer;
  }
}

TEST_F(Chain, ASchedulerThatDoesNotAnswerIsLeftWhenASignalWaits) {
  put_program(here_, "sbatch", ": >" + file("calls") + "; exec sleep 1000");
  JobChain chain(allocation_, here_, {});
  chain.look(folder_, 3, false,
             [&] { return std::filesystem::exists(folder_ / "calls"); });  // else this waits a minute
  EXPECT_EQ(text("jobs.jsonl"), "");
}

TEST_F(Chain, AfterAJobWithoutAStepTheNextOneIsSubmittedAfterAStepOnly) {
  write("jobs.jsonl", R"({"job": "6", "number": 4, "step": 3, "next": "7"})"
                      "\n");
  JobChain idle(allocation_, here_, {});
  idle.look(folder_, 3, false);
  EXPECT_EQ(text("calls"), "");
  idle.look(folder_, 3, true);
  EXPECT_NE(text("calls"), "");
}

TEST_F(Chain, ItEndsWithMaxJobsAndAJobThatWasStartedAgainSubmitsNoSecondOne) {
  write("jobs.jsonl", R"({"job": "6", "number": 4, "step": 1, "next": "7"})"
                      "\n");
  JobChain last(allocation_, here_, {5, ""});
  last.look(folder_, 3, true);
  EXPECT_EQ(text("calls"), "");
  write("jobs.jsonl", R"({"job": "7", "number": 1, "step": 1, "next": "8"})"
                      "\n");
  JobChain again(allocation_, here_, {});
  again.look(folder_, 3, true);
  EXPECT_EQ(text("calls"), "");
}

TEST_F(Chain, WithoutAJobOrAScriptItIsRefusedBeforeAnythingIsStarted) {
  Allocation none = allocation_;
  none.scheduler = Scheduler::kLocal;
  EXPECT_SAYS(refusal<ConfigError>([&] { JobChain(none, here_, {}); }), "needs a job of Slurm or PBS");
  none = allocation_;
  none.job = "5";
  EXPECT_SAYS(refusal<ConfigError>([&] { JobChain(none, here_, {}); }), "no script of job 5");
  none.scheduler = Scheduler::kPbs;
  EXPECT_SAYS(refusal<ConfigError>([&] { JobChain(none, here_, {}); }), "--job-script FILE");
  none.job = "5; rm";
  EXPECT_SAYS(refusal<ConfigError>([&] { JobChain(none, here_, {}); }), "needs a job");
}

}  // namespace job_chain_test
}  // namespace athanor::launch
