#include "launch/verdict.h"

#include <gtest/gtest.h>

#include <set>

namespace athanor::launch::verdict_test {
namespace {

Verdict verdict_of(const Ending& ending) { return row_of(judge_ending(ending).cause).verdict; }

Ending ending_of(int code, bool made_progress = true) { return {code, made_progress, false, {}}; }

TEST(Verdict, EveryKindHasOneRowAndAnAction) {
  std::set<std::string> kinds;
  for (const CauseRow& row : cause_table()) {
    EXPECT_TRUE(kinds.insert(row.kind).second) << row.kind;
    EXPECT_EQ(cause_of_kind(row.kind), row.cause);
    EXPECT_EQ(&row_of(row.cause), &row) << row.kind;
    EXPECT_FALSE(std::string(row.action).empty());
  }
  EXPECT_EQ(cause_of_kind("no such kind"), std::nullopt);
}

TEST(Verdict, EveryCodeOfThePageOnExitCodesHasItsVerdict) {
  EXPECT_EQ(verdict_of(ending_of(0)), Verdict::kSuccess);
  EXPECT_EQ(verdict_of(ending_of(1)), Verdict::kUnknown);
  EXPECT_EQ(judge_ending(ending_of(2)).cause, Cause::kConfiguration);
  EXPECT_EQ(verdict_of(ending_of(10)), Verdict::kStopped);
  EXPECT_EQ(judge_ending(ending_of(11)).cause, Cause::kFileSystem);
  EXPECT_EQ(judge_ending(ending_of(74)).cause, Cause::kFileSystem);
  EXPECT_EQ(verdict_of(ending_of(75)), Verdict::kSoftFailure);
  EXPECT_EQ(verdict_of(ending_of(76)), Verdict::kSystemic);
  EXPECT_EQ(verdict_of(ending_of(77)), Verdict::kStopped);
  EXPECT_EQ(verdict_of(ending_of(78)), Verdict::kBadNode);
  EXPECT_EQ(verdict_of(ending_of(79)), Verdict::kOutOfMemory);
  EXPECT_EQ(judge_ending(ending_of(80)).cause, Cause::kData);
  EXPECT_EQ(verdict_of(ending_of(130)), Verdict::kStopped);
}

TEST(Verdict, WithoutAStepTheWatchdogHasSeenAStartThatIsStuck) {
  EXPECT_EQ(verdict_of(ending_of(124, true)), Verdict::kSilentHang);
  EXPECT_EQ(verdict_of(ending_of(124, false)), Verdict::kStuckBeforeTraining);
  EXPECT_EQ(verdict_of(ending_of(143, true)), Verdict::kWalltime);
  EXPECT_EQ(verdict_of(ending_of(143, false)), Verdict::kStuckBeforeTraining);
}

TEST(Verdict, WhatTheUserStoppedIsStoppedWhateverTheCode) {
  for (const int code : {1, 78, 124, 137, 143})
    EXPECT_EQ(verdict_of({code, true, true, {}}), Verdict::kStopped) << code;
  EXPECT_EQ(verdict_of({0, true, true, {}}), Verdict::kSuccess);
}

TEST(Verdict, LastWordsCountIfALauncherHasLostTheCode) {
  const LastWords words{75, 17, "n6", "silent corruption"};
  for (const int code : {1, 143, -14}) {
    const Judgement judged = judge_ending({code, true, false, words});
    EXPECT_EQ(judged.cause, Cause::kSoftFailure) << code;
    EXPECT_EQ(judged.hosts, std::vector<std::string>{"n6"});
  }
  EXPECT_EQ(judge_ending({79, true, false, words}).cause, Cause::kOutOfMemory);
}

TEST(Verdict, ALostPeerWithoutANameIsAMatterOfTheNetwork) {
  EXPECT_EQ(judge_ending({78, true, false, LastWords{78, 3, "n3", ""}}).hosts, std::vector<std::string>{"n3"});
  EXPECT_EQ(judge_ending({78, true, false, LastWords{78, {}, "", "no rank is late"}}).cause, Cause::kNetwork);
}

TEST(Verdict, TheHostsOfMissingRanksAreAtFaultAndNotThatOfWhoReportsThem) {
  const LastWords words{78, 0, "n0", "missing: rank 3 (n3), rank 9 (n4)", {"n3", "n4"}};
  EXPECT_EQ(judge_ending({78, true, false, words}).hosts, (std::vector<std::string>{"n3", "n4"}));
  EXPECT_EQ(judge_ending({78, true, false, words}).cause, Cause::kBadNode);
}

TEST(Verdict, HostsOfOtherVerdictsAreNotBlamed) {
  EXPECT_TRUE(judge_ending({76, true, false, LastWords{76, 3, "n3", ""}}).hosts.empty());
  EXPECT_TRUE(judge_ending({79, true, false, LastWords{79, 3, "n3", ""}}).hosts.empty());
}

TEST(Verdict, PbsHasCodesBelowZeroAndAboveTwoHundredFiftySix) {
  EXPECT_EQ(judge_ending(ending_of(-29)).cause, Cause::kWalltime);
  EXPECT_EQ(judge_ending(ending_of(-27)).cause, Cause::kOutOfMemory);
  EXPECT_EQ(judge_ending(ending_of(-14)).cause, Cause::kExternalKill);
  EXPECT_EQ(judge_ending(ending_of(-3)).cause, Cause::kLauncher);
  EXPECT_EQ(judge_ending(ending_of(271)).cause, Cause::kWalltime);
  EXPECT_EQ(judge_ending(ending_of(265)).cause, Cause::kCrashUnknown);
}

TEST(Verdict, TimeMayCureWhatServersAndLaunchersDoAndSwapsWhatNodesDo) {
  for (const Cause cause : {Cause::kFileSystem, Cause::kNetwork, Cause::kLauncher, Cause::kLicence})
    EXPECT_EQ(row_of(cause).time, Cure::kYes) << row_of(cause).kind;
  for (const CauseRow& row : cause_table()) {
    const bool of_a_node = row.verdict == Verdict::kBadNode || row.verdict == Verdict::kSoftFailure;
    EXPECT_EQ(row.swap == Cure::kYes, of_a_node) << row.kind;
    if (row.verdict == Verdict::kStopped) {
      EXPECT_EQ(row.time, Cure::kNo) << row.kind;
      EXPECT_EQ(row.swap, Cure::kNo) << row.kind;
    }
  }
}

}  // namespace
}  // namespace athanor::launch::verdict_test
