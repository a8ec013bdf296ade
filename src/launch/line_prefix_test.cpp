#include "launch/line_prefix.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/testing/folder_test.h"
#include "launch/testing/passed_on.h"

namespace athanor::launch::line_prefix_test {
namespace {

using Names = std::vector<std::string>;

// What a line is without its prefixes, and whom they name, the outermost first.
std::string peeled(const std::string& line) {
  PatternScratch scratch;
  PeeledLine result;
  peel(line, signatures(), scratch, result);
  std::string text;
  for (const Prefix& prefix : result.prefixes)
    if (!prefix.host.empty() || !prefix.rank.empty())
      text += std::string(prefix.host) + "/" + std::string(prefix.rank) + " ";
  return text + "| " + std::string(result.text);
}

TEST(LinePrefix, EachIsTakenOffAndWhomItNamesIsKept) {
  const std::string text = "KeyError: 'x'";
  for (const auto& [prefix, names] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"  \t  ", ""},
           {" 3: ", "/3 "},
           {"P1 3: ", "/3 "},
           {"[3] ", "/3 "},
           {"[3@n7] ", "n7/3 "},
           {"[rank3]: ", "/3 "},
           {"[rank3]:", "/3 "},
           {"[default3]:", ""},
           {"[1,3]<stdout>:", "/3 "},
           {"[1,3]<stderr>: ", "/3 "},
           {"[1,3][n7:8812]<stderr>: ", "n7/3 "},
           {"[prterun-n1-8812@1,3]<stdout>: ", "/3 "},
           {"[3]<stdout>: ", "/3 "},
           {"Mon Jan  5 11:20:17 2026[1,3]<stdout>:", "/3 "},
           {"[Mon Jan  5 11:20:17 2026]<stderr>: ", ""},
           {"n7.site.org 3: ", "n7.site.org/3 "},
           {"n7: ", "n7/ "},
           {"2026-01-05T11:20:17.123+01:00 ", ""},
           {"2026-01-05 11:20:17,120 ", ""},
           {"[2026-01-05 11:20:17] ", ""},
           {"11:20:17 ", ""},
           {"11:20:17.123456 ", ""},
           {"[11:20:17]", ""},
           {"[ 1234.567890] ", ""},
           {"Jan  5 11:20:17 n7 train[8812]: ", "n7/ "},
           {"Jan 15 11:20:17 login train.sh: ", "login/ "},
           {"<13>Jan  5 11:20:17 n7 ", "n7/ "},
           {"2026-01-05T11:20:17+00:00 n7 train[8812]: ", "n7/ "},
           {"Jan 15 11:20:17 n1 n7: ", "n1/ n7/ "},
           {"INFO train.loop: ", ""},
           {"INFO     train.loop:trainer.py:12 ", ""},
           {"INFO:root:", ""},
           {"ERROR: ", ""},
           {"2026-01-05 11:20:17,120 - root - ERROR - ", ""},
           {"[titan] 2026-01-05 11:20:17,120 - root - INFO - ", ""},
           {"[2026-01-05 11:20:17][I][components/metrics:526:log] ", ""},
           {"[INFO|trainer_pt_utils.py:912] ", ""},
           {"E0105 11:20:17.123456 8812 torch/distributed/run.py:897] ", ""},
           {"[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] ", "/3 /3 "},
           {"[pod/train-worker-3/pytorch] ", ""},
           {"n7: [rank3]: ", "n7/ /3 "},
           {"2026-01-05T11:20:17Z  3: [rank5]: ", "/3 /5 "},
       })
    EXPECT_EQ(peeled(prefix + text), names + "| " + text) << prefix;
}

TEST(LinePrefix, WhatAMessageBeginsWithIsNoPrefix) {
  for (const std::string text :
       {"n7.site.org: shepherd died from signal 9", "n7.site.org: rank 3 died from signal 15",
        "torch.AcceleratorError: x", "ERROR RuntimeError: x", "srun: error: n3: task 2: Killed", "rank3: lost",
        "train.py: error: x", "n7:8812:8890 [0] NCCL WARN x", "[n7:8812] *** Process received signal ***",
        "n7 kernel: mce: x", "[proxy:0:1@n02] x", "2 tasks", "epoch3: loss"})
    EXPECT_EQ(peeled(text), "| " + text);
}

struct Ending {
  const char* name;
  std::optional<int> code;
  std::string log;
};

void expect_same(const std::string& name, const std::string& log, std::optional<int> code, const JobHosts& job = {}) {
  const auto wanted = classified(log, code, job);
  for (const auto& [mutation, mutate] : mutations()) {
    const auto found = classified(mutated(log, mutate), code, job);
    EXPECT_STREQ(row_of(found.cause).kind, row_of(wanted.cause).kind) << name << ", " << mutation;
    EXPECT_EQ(found.hosts, wanted.hosts) << name << ", " << mutation;
  }
}

// All hosts are invented.
TEST(LinePrefix, AnEndingIsTheSameHoweverItsLinesWerePassedOn) {
  const std::string steps = "step: 1  loss: 2.5  lr: 4e-05\nstep: 2  loss: 2.4  lr: 4e-05\n";
  for (const auto& [name, code, log] : std::vector<Ending>{
           {"a device whose rank has a label", 1,
            steps +
                "n3.site.org 5: torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable\n"
                "n2.site.org: rank 5 died from signal 15\nn4.site.org: rank 3 exited with code 1\n"},
           {"a check of mounts",
            {},
            "EXECJOB_BEGIN: failed mount check: home not mounted(job 812)\nExit_status = -3\n"},
           {"a shepherd", 143, "n3.site.org: shepherd died from signal 9\n"},
           {"an Xid without a host", {}, "NVRM: Xid (PCI:0000:81:00): 79, pid=8812, GPU has fallen off the bus.\n"},
           {"an Xid of a node",
            {},
            "Jan  5 11:20:17 n7 kernel: NVRM: Xid (PCI:0000:81:00): 79, pid=8812, GPU has fallen off the bus.\n"},
           {"a rank of a node", 143,
            steps +
                "[rank7]: RuntimeError: level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)\n"
                "n3.site.org: rank 7 exited with code 1\nn4.site.org: rank 3 died from signal 15\n"},
           {"a user", 143, "slurmstepd: error: *** JOB 812 ON n1 CANCELLED AT 2026-01-05T11:20:17 ***\n"},
           {"a node of Slurm", 143, "srun: error: Node failure on n[07-08]\nsrun: Job step aborted\n"},
           {"a closed connection", 1,
            "n4:8812:8890 [0] NCCL WARN Net : Connection closed by remote peer n3.site.org<41234>\n"},
           {"the last words of a rank", 78,
            "20:39:58 E rank 0 (n1): all_reduce 12 of group data: not over after 600 s; missing: rank 5 (n2), which "
            "does "
            "not answer\n"},
           {"a code", {}, "Exited with exit code 127.\n"},
           {"a report of the end", 0, steps + "complete: 2 steps and 16,384 tokens in 0:05:03 (54 tokens/s)\n"},
           {"an interrupted program", 1, "KeyboardInterrupt\n"},
           {"a state of a node", {}, "n7  state = offline\n"}})
    expect_same(name, log, code);
}

TEST(LinePrefix, LabelledEndingsAreTheSameHoweverTheirLinesWerePassedOn) {
  const auto path = shared_data() / "failure-logs" / "signatures.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no labelled endings: there is no shared data";
  const std::string rows = read_file(path);
  std::string_view rest = rows;
  while (!rest.empty()) {
    const auto row = nlohmann::json::parse(next_line(rest));
    const std::optional<int> code = row["rc"].is_null() ? std::nullopt : std::optional(row["rc"].get<int>());
    expect_same(row["id"], row["text"], code);
  }
}

const std::string kFault = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n";

TEST(LinePrefix, WhoIsNamedInsideOutweighsWhoIsNamedOutside) {
  EXPECT_EQ(classified("n1: start\nn1: n3: " + kFault, 1).hosts, Names{"n3"});
  EXPECT_EQ(classified("n1: start\nn2: [rank5]: " + kFault + "n2: n4.site.org: rank 5 exited with code 1\n", 1).hosts,
            Names{"n4.site.org"});
  EXPECT_EQ(classified("n1: start\nn2: [rank5]: " + kFault, 1).hosts, Names{"n2"}) << "nothing tells where rank 5 is";
  EXPECT_EQ(
      classified("n1: start\nn2: n3:12:13 [0] NCCL WARN NET/IB : mlx5_0:1 async fatal event: port error\n", 1).hosts,
      Names{"n3"});
  EXPECT_EQ(classified("n1: start\nn2: Connection closed by peer [10.1.0.3]:53121\n", 1).hosts, Names{"10.1.0.3"});
}

TEST(LinePrefix, APrefixThatAllLinesHaveNamesNobody) {
  const std::string start = "n1: start\n";
  EXPECT_EQ(classified(start + "n2: " + kFault, 1).hosts, Names{"n2"});
  EXPECT_TRUE(classified(start + "n1: " + kFault, 1).hosts.empty());
  EXPECT_TRUE(classified("n1: " + kFault, 1).hosts.empty());
  EXPECT_EQ(classified("n1: n2: start\nn1: n3: " + kFault, 1).hosts, Names{"n3"});
  const JobHosts job({{"n1", 4}, {"n2", 4}});
  EXPECT_TRUE(classified("[rank5]: start\n[rank5]: " + kFault, 1, job).hosts.empty());
  EXPECT_EQ(classified("[rank0]: start\n[rank5]: " + kFault, 1, job).hosts, Names{"n2"});
}

TEST(LinePrefix, APlaceIsReadFromPrefixesThatTellIt) {
  const std::string missed = "[rank0]: RuntimeError: Rank 5 failed to pass monitoredBarrier in 60000 ms\n";
  EXPECT_EQ(classified("n2: [rank5]: KeyError: 'x'\nn1: " + missed, {}).hosts, Names{});
  EXPECT_EQ(classified("n1: [rank0]: Traceback\nn2: [rank5]: Broken pipe\nn1: " + missed, 1).hosts, Names{"n2"});
}

}  // namespace
}  // namespace athanor::launch::line_prefix_test
