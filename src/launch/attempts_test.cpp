#include "launch/attempts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/exit_codes.h"
#include "launch/attempt_run.h"
#include "launch/testing/recorded_machine.h"
#include "launch/training_command.h"

namespace athanor::launch {
namespace attempts_test {

class Attempts : public RecordedMachine {
 protected:
  Attempt judged(AttemptEnding ending) const {
    Attempt attempt;
    judge_attempt(attempt, ending, JobHosts({{"n1.site", 1}, {"n2.site", 1}}));
    return attempt;
  }
};

TEST_F(Attempts, NumbersContinueAndForeignNamesAreLeftAlone) {
  EXPECT_EQ(next_attempt(folder_ / "a"), 1);
  for (const char* name : {"001", "007", "x08", "9", "0123456789012"})
    std::filesystem::create_directories(folder_ / "a" / name);
  EXPECT_EQ(next_attempt(folder_ / "a"), 8);
}

TEST_F(Attempts, AVerdictIsKeptAndShown) {
  Attempt attempt{3, 10, 20.5, 75, Cause::kSoftFailure, {"n2"}, {{0, "bytes \xff", "last_words"}}, 5, 9};
  make_attempt(folder_, 3, {{"n1", 0}, {"n2", 4}});
  make_attempt(folder_, 4, {{"n1", 0}});
  write_verdict(folder_, attempt);
  EXPECT_EQ(read_file(folder_ / "003" / "hosts"), "n1\nn2\n");
  const auto json = nlohmann::json::parse(read_file(folder_ / "003" / "verdict.json"));
  EXPECT_EQ(json["kind"], "soft_failure");
  EXPECT_EQ(json["exit_code"], 75);
  EXPECT_EQ(json["hosts"], nlohmann::json({"n2"}));
  EXPECT_EQ(json["first_step"], 5);
  EXPECT_EQ(json["last_step"], 9);
  const auto history = attempts_json(folder_);
  ASSERT_EQ(history.size(), 2u);
  EXPECT_EQ(history[0]["cause"], "soft_failure");
  EXPECT_FALSE(history[1].contains("cause"));
  const std::string text = attempts_text(folder_);
  EXPECT_NE(text.find("  3: code 75, soft_failure of n2, steps 5 to 9\n"), text.npos) << text;
  EXPECT_NE(text.find("  4: no verdict"), text.npos) << text;
  write("004/verdict.json", R"({"exit_code": "x", "hosts": 7})");
  EXPECT_NE(attempts_text(folder_).find("  4: its verdict cannot be read"), text.npos);
}

TEST_F(Attempts, OnlyLastWordsOfThisAttemptCount) {
  write("log/last-words.json", R"({"exit_code": 75, "rank": 1, "host": "n2", "attempt": 1, "time": 5})");
  write("events.jsonl", "{\"event\":\"start\",\"attempt\":1,\"step\":0}\n");
  const RunRecords before = read_records(folder_);
  EXPECT_FALSE(has_begun(folder_, before));
  EXPECT_FALSE(fresh_last_words(folder_, before));
  write("log/last-words.json", R"({"exit_code": 75, "rank": 1, "host": "n2", "attempt": 2, "time": 6})");
  const auto words = fresh_last_words(folder_, before);
  ASSERT_TRUE(words);
  EXPECT_EQ(words->host, "n2");
  EXPECT_EQ(judged({.exit_code = 137, .is_training = true, .words = words}).at_fault,
            std::vector<std::string>{"n2.site"});
}

TEST_F(Attempts, OfLastWordsWithMissingRanksTheHostThatReportsThemIsNotTaken) {
  write("log/last-words.json",
        R"({"exit_code": 78, "rank": 0, "host": "n0", "missing": [{"rank": 3, "host": "n3"}, {"rank": 4, "host": "n3"},
            {"rank": 5, "host": ""}, 7]})");
  EXPECT_EQ(fresh_last_words(folder_, {})->missing, std::vector<std::string>{"n3"});
  write("log/last-words.json", R"({"exit_code": 78, "rank": 0, "host": "n0", "missing": []})");
  const auto words = fresh_last_words(folder_, {});
  EXPECT_EQ(judge_ending({78, true, false, words}).cause, Cause::kNetwork) << "no rank is late";
  EXPECT_TRUE(judge_ending({78, true, false, words}).hosts.empty());
}

TEST_F(Attempts, StepsAreThoseDoneSince) {
  write("events.jsonl", "{\"event\":\"start\",\"attempt\":1,\"step\":0}\n");
  write("metrics.jsonl", "{\"attempt\":1,\"step\":4}\n");
  const RunRecords before = read_records(folder_);
  EXPECT_EQ(before.attempt, 1);
  EXPECT_FALSE(steps_since(folder_, before).last);
  write("events.jsonl",
        "{\"event\":\"start\",\"attempt\":1,\"step\":0}\n{\"event\":\"resume\",\"attempt\":2,\"step\":2}\n{\"eve");
  write("metrics.jsonl", "{\"attempt\":1,\"step\":4}\n{\"attempt\":2,\"step\":3}\n{\"attempt\":2,\"st");
  EXPECT_TRUE(has_begun(folder_, before));
  EXPECT_EQ(steps_since(folder_, before).first, 3);
  EXPECT_EQ(steps_since(folder_, before).last, 3);
}

TEST_F(Attempts, TheRunsOwnCodeCountsWhereLaunchersLoseIt) {
  write("events.jsonl", "{\"event\":\"start\",\"attempt\":1,\"step\":0}\n");
  const RunRecords before = read_records(folder_);
  const auto code = [&](int launchers_code, Flavour launcher, const std::string& end) {
    const std::string events = "{\"event\":\"start\",\"attempt\":1,\"step\":0}\n";
    write("events.jsonl", end.empty() ? events : events + "{\"event\":\"resume\",\"attempt\":2}\n" + end + "\n");
    return code_of_run(launchers_code, launcher, folder_, before);
  };
  const std::string stopped = R"({"event": "end", "exit_code": 143})", complete = R"({"event": "end", "exit_code": 0})";
  EXPECT_EQ(code(1, Flavour::kPrrte, stopped), 143);
  EXPECT_EQ(code(1, Flavour::kOpenMpi, stopped), 143);
  EXPECT_EQ(code(1, Flavour::kOpenMpi, complete), 1) << "a rank failed after the run's end";
  EXPECT_EQ(code(1, Flavour::kHydra, stopped), 1);
  EXPECT_EQ(code(0, Flavour::kHydra, stopped), 143);
  EXPECT_EQ(code(0, Flavour::kHydra, complete), 0);
  EXPECT_EQ(code(0, Flavour::kHydra, "{}"), 1) << "it began, and has no end: a rank was killed";
  EXPECT_EQ(code(0, Flavour::kHydra, ""), 0) << "there was nothing to do";
  EXPECT_EQ(code(137, Flavour::kSrun, stopped), 143);
  EXPECT_EQ(code(137, Flavour::kHydra, stopped), 137);
  EXPECT_EQ(code(75, Flavour::kOpenMpi, stopped), 75);
}

TEST_F(Attempts, WhatARunReportsComesBeforeItsLogAndTheLogBeforeTheBareCode) {
  const auto log = write("log", "n1: step 9\nsrun: error: Node failure on n2\n");
  using namespace exit_code;
  EXPECT_EQ(judged({.exit_code = 0, .log = log}).cause, Cause::kSuccess);
  EXPECT_EQ(judged({.exit_code = kNumbersEverywhere, .is_training = true, .log = log}).cause, Cause::kNumbers);
  EXPECT_EQ(judged({.exit_code = 143, .was_told_to_stop = true, .log = log}).cause, Cause::kUserCancel);
  const Attempt from_log = judged({.exit_code = 1, .is_training = true, .log = log});
  EXPECT_EQ(from_log.cause, Cause::kBadNode);
  EXPECT_EQ(from_log.at_fault, std::vector<std::string>{"n2.site"});
  EXPECT_EQ(judged({.exit_code = 1, .is_training = true}).cause, Cause::kCrashUnknown);
  const AttemptEnding hang{.exit_code = kNoProgress,
                           .is_training = true,
                           .was_overdue = true,
                           .at_fault = {"n1"},
                           .steps = {1, 4},
                           .log = log};
  EXPECT_EQ(judged(hang).cause, Cause::kSilentHang);
  EXPECT_EQ(judged(hang).at_fault, std::vector<std::string>{"n1.site"});
}

TEST_F(Attempts, LastWordsTellMoreThanALogThatOnlyShowsThatTheRunHadTrained) {
  const auto log = write("log", "step: 6  loss: 4.2\n");
  const LastWords words{1, 2, "n2", "step 7: shard 3 is short"};
  const Attempt attempt = judged({.exit_code = 1, .is_training = true, .words = words, .steps = {1, 6}, .log = log});
  EXPECT_EQ(attempt.cause, Cause::kCrashUnknown);
  ASSERT_EQ(attempt.evidence.size(), 2u);
  EXPECT_EQ(attempt.evidence[1].text, "rank 2 (n2): step 7: shard 3 is short");
}

TEST_F(Attempts, ASignalToARankIsNoCrashUnlessTheLogStatesACause) {
  write("events.jsonl", "{\"event\":\"stop\",\"signal\":10}\n");
  const RunRecords before = read_records(folder_);
  EXPECT_EQ(stop_since(folder_, before).signal, 0);
  write("events.jsonl", "{\"event\":\"stop\",\"signal\":10}\n{\"event\":\"stop\",\"signal\":15}\n");
  EXPECT_EQ(stop_since(folder_, before).signal, 15);
  EXPECT_FALSE(end_code_since(folder_, before));
  write("events.jsonl", "{\"event\":\"stop\",\"signal\":10}\n{\"event\":\"end\",\"exit_code\":143}\n");
  EXPECT_EQ(end_code_since(folder_, before), 143);
  const auto log =
      write("log", "step: 6  loss: 4.2\nmpirun detected that one or more processes exited with non-zero status\n");
  AttemptEnding ending{.exit_code = 143, .is_training = true, .stop_signal = "SIGTERM", .steps = {1, 6}, .log = log};
  EXPECT_EQ(judged(ending).cause, Cause::kExternalKill);
  EXPECT_EQ(judged(ending).evidence.front().text, "a rank got SIGTERM: the run saved and stopped");
  ending.log =
      write("log", "slurmstepd: error: *** JOB 6 ON n1 CANCELLED AT 2026-01-05T11:20:17 DUE TO TIME LIMIT ***\n");
  EXPECT_EQ(judged(ending).cause, Cause::kWalltime);
}

TEST_F(Attempts, OnlyATrainingHasARunFolder) {
  write("run.toml", "[train]\nrun_dir = \"runs/a\"\n");
  const std::string config = (folder_ / "run.toml").string();
  const auto folder_of = [](const std::vector<std::string>& command, const std::string& own_program) {
    const auto found = training_config(command, own_program);
    return found ? found->train.run_dir : "none";
  };
  EXPECT_EQ(folder_of({"/x/athanor", "train", config, "--set", "train.run_dir=runs/b"}, ""), "runs/b");
  EXPECT_EQ(folder_of({"/own", "train", "--set=train.run_dir=runs/c", config}, "/own"), "runs/c");
  EXPECT_EQ(folder_of({"athanor", "train", (folder_ / "none.toml").string()}, ""), "none");
  EXPECT_EQ(folder_of({"athanor", "verify", config}, ""), "none");
  EXPECT_EQ(folder_of({"./train", "train", config}, ""), "none");
  EXPECT_EQ(folder_of({"athanor", "train", "--help"}, ""), "none");
}

}  // namespace attempts_test
}  // namespace athanor::launch
