#include "launch/host_names.h"

#include <gtest/gtest.h>

namespace athanor::launch::host_names_test {
namespace {

using Names = std::vector<std::string>;

TEST(HostNames, AllSpellingsOfAMachineAreOneName) {
  for (const char* name : {"n12", "N12", "n12.cluster.org", "n12.hsn.cluster.org", "n12-ib0", "n12-hsn1.cluster.org",
                           "n12-eth0", "n12-opa", "n12-bond0"})
    EXPECT_EQ(machine_name(name), "n12") << name;
}

TEST(HostNames, OtherHyphensBelongToTheName) {
  EXPECT_EQ(machine_name("gpu-a-12"), "gpu-a-12");
  EXPECT_EQ(machine_name("node-ibex3"), "node-ibex3");
  EXPECT_EQ(machine_name("-ib0"), "-ib0");
}

TEST(HostNames, AnAddressIsNoNameWithADomain) {
  EXPECT_EQ(machine_name("10.1.0.3"), "10.1.0.3");
  EXPECT_EQ(machine_name("fe80::1"), "fe80::1");
  EXPECT_TRUE(is_address("10.1.0.3") && is_address("fe80::1"));
  EXPECT_FALSE(is_address("10.1.0.300") || is_address("n12") || is_address(""));
}

TEST(HostNames, WordsOfMessagesAreNoHosts) {
  EXPECT_TRUE(may_be_host("n12") && may_be_host("rack_1_n12") && may_be_host("gpu-a-12.cluster.org"));
  for (const char* word : {"", "localhost", "1234", "EXECJOB_BEGIN", "-rf", "n1;rm", "a b", "n1\n"})
    EXPECT_FALSE(may_be_host(word)) << word;
}

TEST(HostNames, ListsOfSlurmAreExpandedAndBrokenOnesAreOneName) {
  EXPECT_EQ(names_of_list("n[1-3,07],login"), (Names{"n1", "n2", "n3", "n07", "login"}));
  EXPECT_EQ(names_of_list("n[3-1]"), Names{"n[3-1]"});
  EXPECT_EQ(names_of_list("n[1-"), Names{"n[1-"});
  EXPECT_EQ(names_of_list("n[1-99999999]"), Names{"n[1-99999999]"});
}

TEST(HostNames, AHostOfTheJobIsNamedAsItsFileDoes) {
  const JobHosts job({{"n1.cluster.org", 0}, {"n2.cluster.org", 0}});
  EXPECT_EQ(job.find("n2-hsn0"), "n2.cluster.org");
  EXPECT_EQ(job.find("n3"), std::nullopt);
}

TEST(HostNames, RanksFillHostsInOrderIfTheFileTellsHowMany) {
  const JobHosts job({{"n1", 2}, {"n2", 3}});
  EXPECT_EQ(job.host_of_rank(1), "n1");
  EXPECT_EQ(job.host_of_rank(2), "n2");
  EXPECT_EQ(job.host_of_rank(4), "n2");
  EXPECT_EQ(job.host_of_rank(5), std::nullopt);
  EXPECT_EQ(job.host_of_rank(-1), std::nullopt);
}

TEST(HostNames, AFileWithEachHostOnceTellsNoHostOfARank) {
  EXPECT_EQ(JobHosts({{"n1", 1}, {"n2", 1}}).host_of_rank(1), std::nullopt);
  EXPECT_EQ(JobHosts({{"n1", 0}, {"n2", 0}}).host_of_rank(0), std::nullopt);
}

}  // namespace
}  // namespace athanor::launch::host_names_test
