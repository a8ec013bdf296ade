#include "launch/cpu_layout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/text.h"
#include "launch/node_devices.h"
#include "launch/testing/recorded_machine.h"

namespace athanor::launch {
namespace cpu_layout_test {

class CpuLayoutOf : public RecordedMachine {
 protected:
  static std::string lists(const CoreShares& shares) {
    std::vector<std::string> texts;
    for (const auto& cpus : shares.cpus) texts.push_back(cpu_list_text(cpus));
    return join(texts, ":");
  }
  // The ranks of a machine, one for each of its first devices.
  static CoreShares share(const std::string& name, int ranks, std::vector<int> excluded = {}, int reserved = 0) {
    const auto here = machine(name);
    return share(read_cpu_layout(here), find_devices(here), ranks, std::move(excluded), reserved);
  }
  static CoreShares share(const CpuLayout& layout, const NodeDevices& found, int ranks, std::vector<int> excluded = {},
                          int reserved = 0) {
    std::vector<int> numa;
    for (const auto& device : found.devices)
      if (std::ssize(numa) < ranks) numa.push_back(device.numa);
    if (std::ssize(numa) < ranks) numa.clear();
    return divide_cores(layout, {ranks, numa, std::move(excluded), reserved});
  }
};

TEST_F(CpuLayoutOf, CoresOfAuroraAreCountedWithoutTheirSecondThreads) {
  const auto layout = read_cpu_layout(machine("aurora"));
  EXPECT_EQ(layout.cores.size(), 104u);
  EXPECT_EQ(layout.sockets, 2);
  EXPECT_EQ(layout.threads_per_core, 2);
  EXPECT_EQ(layout.cores[52], (Core{52, 1, 1}));
}

// The lists are those that ALCF's user guide gives for 12, 6 and 1 ranks of a node.
TEST_F(CpuLayoutOf, TheTwelveTilesOfAuroraGetTheListOfItsUserGuide) {
  const auto shares = share("aurora", 12, {0, 52});
  EXPECT_EQ(lists(shares), "1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100");
  EXPECT_EQ(shares.threads, 8);
  EXPECT_FALSE(shares.is_even);
  const auto layout = read_cpu_layout(machine("aurora"));
  EXPECT_EQ(lists(divide_cores(layout, {6, {0, 0, 0, 1, 1, 1}, {0, 52}, 0})), "1-17:18-34:35-51:53-69:70-86:87-103");
  EXPECT_EQ(lists(divide_cores(layout, {1, {}, {0, 52}, 0})), "1-51,53-103");
}

TEST_F(CpuLayoutOf, ReservedCoresStayWithTheirRankAndDoNotCompute) {
  const auto shares = share("aurora", 12, {0, 52}, 1);
  EXPECT_EQ(lists(shares), "1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100");
  EXPECT_EQ(shares.threads, 7);
  EXPECT_SAYS(refusal<ConfigError>([&] {
                share("aurora", 12, {0, 52}, 8);
              }),
              "--reserve-cores 8: a rank has 8 cores (12 ranks on 102 cores of a node), so that none is left");
}

TEST_F(CpuLayoutOf, RanksAreNearTheirDevicesWhereTheseAreInAnotherOrder) {
  EXPECT_EQ(lists(share("frontier", 8)), "48-55:56-63:16-23:24-31:0-7:8-15:32-39:40-47");
  EXPECT_EQ(lists(share("perlmutter", 4)), "48-63:32-47:16-31:0-15");
  EXPECT_EQ(lists(share("polaris", 4)), "24-31:16-23:8-15:0-7");
  EXPECT_EQ(lists(share("dgx_h100", 8)), "0-13:14-27:28-41:42-55:56-69:70-83:84-97:98-111");
}

TEST_F(CpuLayoutOf, CoresOfNumaNodesWithoutADeviceDoNotIdle) {
  // Two devices at two of four nodes: halves of the socket.
  EXPECT_EQ(lists(share("perlmutter", 2)), "0-31:32-63");
}

TEST_F(CpuLayoutOf, WithoutDevicesRanksAreSpreadOverSocketsWhoseNumbersAlternate) {
  const auto two = share("two_sockets", 2);
  EXPECT_EQ(two.cpus[0].size(), 28u);
  EXPECT_EQ(two.cpus[0][1], 2);
  EXPECT_EQ(two.cpus[1][1], 3);
  EXPECT_TRUE(two.is_even);
  EXPECT_EQ(lists(share("two_sockets", 1)).substr(0, 7), "0,2,4,6");
  EXPECT_EQ(share("two_sockets", 1).threads, 56);
  EXPECT_EQ(share("two_sockets", 4).threads, 14);
  const auto three = share("two_sockets", 3);  // two on the first socket, one on the second
  EXPECT_EQ(three.threads, 14);
  EXPECT_EQ(three.cpus[2].size(), 28u);
  EXPECT_FALSE(three.is_even);
}

TEST_F(CpuLayoutOf, MoreRanksThanCoresAreNotBound) {
  const auto shares = share("two_sockets", 57);
  EXPECT_TRUE(shares.cpus.empty());
  EXPECT_EQ(shares.threads, 1);
  EXPECT_EQ(share("two_sockets", 56).cpus[55].size(), 1u);
  EXPECT_SAYS(refusal<ConfigError>([&] { share("two_sockets", 57, {}, 1); }), "none is left");
}

TEST_F(CpuLayoutOf, NoCoreIsGivenToTwoRanksWhateverTheirNumber) {
  for (const char* name : {"aurora", "frontier", "dgx_h100", "two_sockets"}) {
    const auto here = machine(name);
    const auto layout = read_cpu_layout(here);
    const auto devices = find_devices(here);
    for (const int ranks : {1, 2, 3, 5, 7, 8, 12, 31, 52, 55}) {
      std::set<int> used;
      for (const auto& cpus : share(layout, devices, ranks).cpus) {
        EXPECT_FALSE(cpus.empty()) << name << " " << ranks;
        for (const int cpu : cpus) EXPECT_TRUE(used.insert(cpu).second) << name << " " << ranks << " " << cpu;
      }
    }
  }
}

TEST_F(CpuLayoutOf, OnlyCoresThatThisProcessMayRunOnAreDivided) {
  const auto here = machine_of_its_own("aurora");
  put(here, "proc/self/status", "Name:\tathanor\nCpus_allowed_list:\t1-51,53-103,105-155");
  const auto layout = read_cpu_layout(here);
  EXPECT_EQ(layout.cores.size(), 102u);
  EXPECT_EQ(layout.all_cores, 104);
  EXPECT_EQ(cpu_list_text(divide_cores(layout, {12, {}, {}, 0}).cpus[6]), "53-60");
}

TEST_F(CpuLayoutOf, WrongListsOfCoresAreRefused) {
  EXPECT_SAYS(refusal<ConfigError>([&] { share("two_sockets", 2, {56}); }),
              "--exclude-cores: 56 is none of the 56 cores that this process may run on");
  for (const char* list : {"x", "1-", "3-1", "1,,2", "", "-1", "70000", "0-99999999999"})
    EXPECT_SAYS(refusal<ConfigError>([&] { parse_cpu_list(list, "--exclude-cores"); }), "expected numbers and ranges");
  EXPECT_EQ(cpu_list_text(parse_cpu_list("0,52-54,9", "x")), "0,52-54,9");
}

TEST_F(CpuLayoutOf, WithoutTheFilesOfTheKernelThereIsOneSocket) {
  Surroundings here;
  here.root = folder_;
  const auto layout = read_cpu_layout(here);
  EXPECT_EQ(layout.sockets, 1);
  EXPECT_GE(layout.cores.size(), 1u);
}

}  // namespace cpu_layout_test
}  // namespace athanor::launch
