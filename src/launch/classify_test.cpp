#include "launch/classify.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/testing/folder_test.h"

namespace athanor::launch::classify_test {
namespace {

using Names = std::vector<std::string>;

// Logs are written after the documentation of the programs that print such lines; all hosts are invented.
class Classify : public FolderTest {
 protected:
  static const SignatureSet& signatures() {
    static const SignatureSet set = SignatureSet::load();
    return set;
  }

  Classification of(const std::string& log, std::optional<int> code = 1, const JobHosts& job = {}) {
    write_file_atomically(folder_ / "log", log);
    return classify_log(folder_ / "log", code, job, signatures());
  }

  static std::string steps(int from, int to) {
    std::string text;
    for (int step = from; step <= to; ++step) text += "step: " + std::to_string(step) + "  loss: 2.5  lr: 4e-05\n";
    return text;
  }
};

TEST_F(Classify, TheLostNodeIsNamedAndTheHeadIsNot) {
  const auto found = of(steps(1, 9) +
                            "ORTE has lost communication with a remote daemon.\n\n"
                            "  HNP daemon   : [[57349,0],0] on node n1\n  Remote daemon: [[57349,0],2] on node n3\n",
                        205);
  EXPECT_EQ(found.cause, Cause::kBadNode);
  EXPECT_EQ(found.hosts, Names{"n3"});
  EXPECT_EQ(found.last_step, 9);
}

TEST_F(Classify, TheSurvivorWhoReportsAFailedConnectionIsNotBlamed) {
  const auto found =
      of("WARNING: Open MPI failed to TCP connect to a peer MPI process.  This\n"
         "  Local host: n2\n  PID:        8812\n  Message:    connect() to 10.1.0.3:1030 failed\n"
         "  Error:      Operation now in progress (115)\n");
  EXPECT_EQ(found.cause, Cause::kBadNode);
  EXPECT_EQ(found.hosts, Names{"10.1.0.3"});
}

TEST_F(Classify, AnInnocentHostIsNotBlamedByASign) {
  const auto found = of("  Local host: n2\n  Peer host:  n2\n  Peer host:  n3\n");
  EXPECT_EQ(found.hosts, Names{"n3"});
}

TEST_F(Classify, TheHostThatPingsIsNotTheOneThatIsGone) {
  const auto found =
      of("ping failed on n04: Couldn't forward RPC ping(24c9) to child n11.hostmgmt.site.org: Resource temporarily "
         "unavailable\n"
         "n04.hsn.site.org: rank 12 died from signal 15\n",
         143);
  EXPECT_EQ(found.hosts, Names{"n11.hostmgmt.site.org"});
}

TEST_F(Classify, WhatFollowsNeverBlames) {
  for (const char* line :
       {"n04.hsn.site.org: rank 12 died from signal 15\n", "n04.hsn.site.org: rank 12 exited with code 1\n",
        "srun: error: n03: tasks 8-15: Terminated\n", "srun: error: n03: task 8: Exited with exit code 1\n",
        "mpirun noticed that process rank 2 with PID 9974 on node n03 exited on signal 11 (Segmentation fault).\n",
        "MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n",
        "=   PID 9974 RUNNING AT n03\n=   KILLED BY SIGNAL: 15 (Terminated)\n"}) {
    const auto found = of(line);
    EXPECT_TRUE(found.hosts.empty()) << line;
    EXPECT_EQ(row_of(found.cause).verdict, Verdict::kUnknown) << line;
  }
}

TEST_F(Classify, AStartThatWasEndedFromOutsideIsStuckIfOnlyRanksAreKnownToHaveDied) {
  EXPECT_EQ(of("rank 5 died from signal 11\n", 143).cause, Cause::kStuckPreTraining);
  EXPECT_EQ(of("11:20:17 rank 5 died from signal 11\n", 143).cause, Cause::kStuckPreTraining);
  EXPECT_EQ(of("rank 5 died from signal 11\nn3.site.org: shepherd died from signal 11\n", 143).cause, Cause::kCascade);
  EXPECT_EQ(of(steps(1, 9) + "rank 5 died from signal 11\n", 143).cause, Cause::kCascade);
}

TEST_F(Classify, AStepOfSlurmThatIsCancelledAfterATaskWasKilledWasCancelledByNoUser) {
  const std::string killed = "srun: error: n03: task 2: Killed\n";
  const std::string cancelled = "slurmstepd-n01: error: *** STEP 1.0 ON n01 CANCELLED AT 2026-11-25T15:18:32 ***\n";
  const auto found = of(steps(1, 7) + killed + cancelled + "srun: error: n01: task 0: Killed\n", 137);
  EXPECT_EQ(found.cause, Cause::kCrashUnknown);
  EXPECT_EQ(found.evidence.front().text, "srun: error: n03: task 2: Killed");
  EXPECT_EQ(of(steps(1, 7) + cancelled + killed, 137).cause, Cause::kUserCancel) << "scancel, then KillWait";
}

TEST_F(Classify, TheFirstCauseInTimeWins) {
  const std::string memory = "slurmstepd: error: Detected 1 oom_kill event in StepId=812.0. Some tasks\n";
  const std::string full = "OSError: [Errno 28] No space left on device: '/scratch/x'\n";
  EXPECT_EQ(of(memory + full).cause, Cause::kOutOfMemory);
  EXPECT_EQ(of(full + memory).cause, Cause::kFileSystem);
}

TEST_F(Classify, ACauseThatWasSurvivedIsThatOfAnEarlierAttemptIfThereIsAnother) {
  // A job that was started again appends to its log, and a program may print what it reads.
  const std::string earlier = steps(1, 9) + "n3.site.org: shepherd died from signal 9\n";
  const std::string full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n";
  const auto later = of(earlier + steps(1, 20) + full);
  EXPECT_EQ(later.cause, Cause::kOutOfMemory);
  EXPECT_EQ(later.hosts, Names{});
  EXPECT_EQ(of(earlier + steps(1, 20) + "n5.site.org: shepherd died from signal 9\n").hosts, Names{"n5.site.org"});
  EXPECT_EQ(of(earlier + steps(10, 11) + full).hosts, Names{"n3.site.org"});  // its last steps may come after it
  EXPECT_EQ(of(earlier + steps(1, 20)).hosts, Names{"n3.site.org"});          // and nothing else explains the end
}

TEST_F(Classify, ACauseWinsOverSignsBeforeIt) {
  const auto found =
      of("[rank0]: RuntimeError: [pair.cc:598] Connection closed by peer [10.1.0.3]:53121\n"
         "srun: error: Node failure on n[07-08]\n");
  EXPECT_EQ(found.hosts, (Names{"n07", "n08"}));
}

TEST_F(Classify, OfSignsOnlyTheFirstNamesAHost) {
  const auto found = of("Connection closed by peer [10.1.0.3]:53121\nConnection closed by peer [10.1.0.9]:53122\n");
  EXPECT_EQ(found.hosts, Names{"10.1.0.3"});
}

TEST_F(Classify, AWarningThatWasSurvivedExplainsNothing) {
  const std::string lost =
      "Lustre: fs1-OST0012: Connection to fs1-OST0012 (at 10.9.0.4@o2ib) was lost; in progress operations using this "
      "service will wait for recovery to complete\n";
  EXPECT_EQ(of(steps(1, 3) + lost + steps(4, 9), 143).cause, Cause::kWalltime);
  EXPECT_EQ(of(steps(1, 3) + lost + steps(4, 4), 143).cause, Cause::kFileSystem);
  EXPECT_EQ(of(steps(1, 3) + lost + steps(4, 9), 1).cause, Cause::kFileSystem);  // unless nothing else explains it
}

TEST_F(Classify, AFinishedJobHasNotFailed) {
  const std::string end = "complete: 20 steps and 16,384 tokens in 0:05:03 (54 tokens/s, MFU 31.2%)\n";
  EXPECT_EQ(of(steps(1, 20) + end, 0).cause, Cause::kSuccess);
  EXPECT_EQ(of(steps(1, 20) + end + "n1: rank 5 died from signal 11\n", 139).cause, Cause::kSuccess);
  EXPECT_EQ(of(steps(1, 20) + "n1:8812:8890 [0] NCCL WARN Net : Connection closed by remote peer n2<41>\n", 0).cause,
            Cause::kSuccess);
  EXPECT_EQ(of("[after training is done] datetime: 2026-01-05 11:20:17\n", {}).cause, Cause::kSuccess);
  EXPECT_NE(of("save a model when training is done\nKeyError: 'x'\n").cause, Cause::kSuccess);
}

TEST_F(Classify, AReportedCodeCountsIfTheShellLostIt) {
  EXPECT_EQ(of("Execution finished with \x1b[1;36m127\x1b[0m.\n", 0).cause, Cause::kCrashUnknown);
  EXPECT_EQ(of("    Exit_status = -29\n", {}).cause, Cause::kWalltime);
  EXPECT_EQ(of("    Exit_status = 0\n", {}).cause, Cause::kSuccess);
}

TEST_F(Classify, WithoutAMessageTheCodeDecides) {
  EXPECT_EQ(of(steps(1, 9), 0).cause, Cause::kSuccess);
  EXPECT_EQ(of(steps(1, 9), 124).cause, Cause::kSilentHang);
  EXPECT_EQ(of("loading\n", 124).cause, Cause::kStuckPreTraining);
  EXPECT_EQ(of("loading\n", 143).cause, Cause::kStuckPreTraining);
  EXPECT_EQ(of(steps(1, 9), 1).cause, Cause::kSuccessMarker);
  EXPECT_EQ(of("loading\n", 1).cause, Cause::kCrashUnknown);
  EXPECT_EQ(of("loading\n", {}).cause, Cause::kUnknown);
}

TEST_F(Classify, CodesOfAthanorWinOverWhatItsRanksPrintAfterThem) {
  EXPECT_EQ(of("OSError: [Errno 28] No space left on device\n", 10).cause, Cause::kStopped);
  EXPECT_EQ(of("[rank0]: KeyError: 'x'\n", 79).cause, Cause::kOutOfMemory);
  const auto found =
      of("rank 0 (n4): step 2051: the loss is nan and the gradient norm nan; n6 computed wrong numbers. "
         "Nothing was updated. Run again without n6\n",
         75);
  EXPECT_EQ(found.cause, Cause::kSoftFailure);
  EXPECT_EQ(found.hosts, Names{"n6"});
}

TEST_F(Classify, ALogThatContinuesWithoutStepsIsThatOfAHang) {
  const std::string step = "2026-01-05 10:00:00 step: 5  loss: 2.5\n";
  EXPECT_EQ(of(step + "2026-01-05 10:29:59 alive\n", 143).cause, Cause::kWalltime);
  EXPECT_EQ(of(step + "2026-01-05 10:30:01 alive\n", 143).cause, Cause::kSilentHang);
}

TEST_F(Classify, RanksAreFoundOnTheirHosts) {
  const std::string fault = "[rank5]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n";
  EXPECT_EQ(of(fault + "srun: error: n02: task 5: Exited with exit code 1\n").hosts, Names{"n02"});
  EXPECT_EQ(of("n02:8812:8890 [1] NCCL INFO comm 0x55d0 rank 5 nranks 8 cudaDev 1\n" + fault).hosts, Names{"n02"});
  EXPECT_EQ(of(fault, 1, JobHosts({{"n1", 4}, {"n2", 4}})).hosts, Names{"n2"});
  EXPECT_TRUE(of(fault, 1, JobHosts({{"n1", 0}, {"n2", 0}})).hosts.empty());
}

TEST_F(Classify, AnAddressIsANameIfTheLogShowsIt) {
  const std::string places =
      "n2:8812:8812 [0] NCCL INFO Bootstrap : Using hsn0:10.1.0.2<0>\nn3:8812:8812 [0] NCCL INFO Bootstrap: Using "
      "hsn0:10.1.0.3<0>\n";
  EXPECT_EQ(of(places + "Connection closed by peer [10.1.0.3]:53121\n").hosts, Names{"n3"});
}

TEST_F(Classify, OnlyHostsOfTheJobAreNamed) {
  const JobHosts job({{"n1.site.org", 0}, {"n3.site.org", 0}});
  EXPECT_EQ(of("n3-hsn0.hsn.site.org: shepherd died from signal 9\n", 143, job).hosts, Names{"n3.site.org"});
  EXPECT_TRUE(of("n9.hsn.site.org: shepherd died from signal 9\n", 143, job).hosts.empty());
  EXPECT_EQ(of("Connection closed by peer [10.1.0.3]:53121\n", 1, job).hosts, Names{"10.1.0.3"});
}

TEST_F(Classify, ANodeThatNoLineNamesIsTheOneWhoseRanksEndedByThemselves) {
  const std::string mount = "Couldn't change directory to /scratch/run:\n    No such file or directory\n";
  const auto found = of("n7: rank 28 exited with code 127\n" + mount);
  EXPECT_EQ(found.hosts, Names{"n7"});
  ASSERT_EQ(found.suspects.size(), 1U);
  EXPECT_EQ(found.suspects[0].host, "n7");
  EXPECT_TRUE(of("n7: rank 28 exited with code 127\nn8: rank 30 exited with code 127\n" + mount).hosts.empty());
}

TEST_F(Classify, ControlCharactersOfTheLogDoNotReachTheTerminal) {
  const auto found =
      of("n3: shepherd died from signal 9\x1b[2J\x07\x9b"
         "31m\xc2\x9b\x08\n",
         143);
  const std::string text = classification_text(found);
  for (const char c : text) EXPECT_TRUE(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f)) << text;
  EXPECT_EQ(text.find('\x9b'), text.npos);
  EXPECT_NE(text.find("line 1: n3: shepherd died from signal 9\\x07?31m?\\x08\n"), text.npos) << text;
}

TEST_F(Classify, JsonHasTheRowOfTheTable) {
  const auto json = classification_json(of("slurmstepd: error: execve(): ./x: No such file or directory\n", 2), 2);
  EXPECT_EQ(json["cause"], "code_bug");
  EXPECT_EQ(json["kind"], "configuration");
  EXPECT_EQ(json["verdict"], "systemic");
  EXPECT_EQ(json["swap_may_cure"], "no");
  EXPECT_EQ(json["evidence"][0]["line"], 1);
  EXPECT_EQ(json["suspects"], nlohmann::json::array());
}

TEST_F(Classify, ASuspectIsAmongTheHostsAndComesWithTheReason) {
  const auto found = of("srun: error: n3: task 2: Killed\n", 137);
  const auto json = classification_json(found, 137);
  EXPECT_EQ(json["hosts"], nlohmann::json({"n3"}));
  EXPECT_EQ(json["suspects"], nlohmann::json({"n3"}));
  EXPECT_NE(json["suspect_reasons"]["n3"].get<std::string>().find("dmesg"), std::string::npos);
  EXPECT_NE(classification_text(found).find("\nsuspect: n3: one of its processes was ended by SIGKILL"),
            std::string::npos);
}

}  // namespace
}  // namespace athanor::launch::classify_test
