#include "launch/host_list.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::launch {
namespace host_list_test {

using Names = std::vector<std::string>;

Names expand(std::string_view list) { return expand_node_list(list, "SLURM_JOB_NODELIST"); }

TEST(HostList, RangesKeepTheirZerosAndNamesMayHaveSeveralBrackets) {
  EXPECT_EQ(expand("nid[000001-000003,000007],x[1-2]c0"),
            (Names{"nid000001", "nid000002", "nid000003", "nid000007", "x1c0", "x2c0"}));
  EXPECT_EQ(expand("x[1-2]c[0,7]s0"), (Names{"x1c0s0", "x1c7s0", "x2c0s0", "x2c7s0"}));
  EXPECT_EQ(expand("n[8-11]"), (Names{"n8", "n9", "n10", "n11"}));
  EXPECT_EQ(expand("n[08-10]"), (Names{"n08", "n09", "n10"}));
  EXPECT_EQ(expand("login"), (Names{"login"}));
  EXPECT_EQ(expand("r[1-2]-ib.site.org"), (Names{"r1-ib.site.org", "r2-ib.site.org"}));
}

TEST(HostList, TheNodesOfFrontierAreExpanded) {
  const auto names = expand("frontier[00001-09408]");
  EXPECT_EQ(names.size(), 9408u);
  EXPECT_EQ(names.back(), "frontier09408");
}

TEST(HostList, ListsOfAnotherFormAreRefusedInOneLine) {
  for (const char* list : {"", "n[1-3", "n1]", "n[]", "n[3-1]", "n[1-x]", "n[1--2]", "a,,b", "n[1-2", "n[[1]]", "n[-1]",
                           "n[1-2]]", "n[99999999999-99999999999]"})
    EXPECT_SAYS(refusal<ConfigError>([&] { expand(list); }), "SLURM_JOB_NODELIST: ");
}

TEST(HostList, AListThatWouldFillTheMemoryIsRefusedBeforeItIsExpanded) {
  EXPECT_SAYS(refusal<ConfigError>([] { expand("n[0-999999]"); }), "more than 262144 hosts");
  EXPECT_SAYS(refusal<ConfigError>([] { expand("n[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]"); }), "more than 262144");
  EXPECT_SAYS(refusal<ConfigError>([] { expand("a[0-199999],b[0-199999]"); }), "more than 262144");
}

TEST(HostList, NamesWithCharactersOfAShellOrOfAnOptionAreRefused) {
  for (const char* name : {"n1;rm", "n$(id)", "`id`", "a b", "-oProxyCommand=x", "n|x", "n>x", "n\nx", "n'x", "n/x",
                           "n*", "ünode", "n&"}) {
    EXPECT_FALSE(is_host_name(name)) << name;
    EXPECT_SAYS(refusal<ConfigError>([&] { expand(name); }), "is no name of a host");
  }
  for (const char* name : {"n1", "x4102c0s0b0n0.hsn.cm.aurora.alcf.anl.gov", "node_1", "10.0.0.1", "fe80::1", "n-1"})
    EXPECT_TRUE(is_host_name(name)) << name;
}

TEST(HostList, CountsAreExpanded) {
  EXPECT_EQ(expand_counts("4,2,1(x2)", "SLURM_TASKS_PER_NODE"), (std::vector<int>{4, 2, 1, 1}));
  for (const char* counts : {"", "0", "4,", "x2", "1(x0)", "1(x", "-1", "1(x99999999)"})
    EXPECT_SAYS(refusal<ConfigError>([&] { expand_counts(counts, "SLURM_TASKS_PER_NODE"); }), "SLURM_TASKS_PER_NODE: ");
}

std::string refused(const char* text) {
  return refusal<ConfigError>([&] { parse_host_file(text, "h", RepeatedHost::kRefused); });
}

TEST(HostFile, HostsMayHaveSlotsInBothForms) {
  const auto hosts = parse_host_file("# two\nn1 slots=4 max_slots=8\n\nn2:2  # small\n10.0.0.3\nfe80::1\n", "hosts",
                                     RepeatedHost::kRefused);
  EXPECT_EQ(hosts, (std::vector<Host>{{"n1", 4}, {"n2", 2}, {"10.0.0.3", 0}, {"fe80::1", 0}}));
}

TEST(HostFile, AFileOfPbsHasALineForEachSlot) {
  EXPECT_EQ(parse_host_file("b\na\nb\n", "nodes", RepeatedHost::kSlots), (std::vector<Host>{{"b", 2}, {"a", 1}}));
}

TEST(HostFile, ARepeatedHostIsRefusedWithBothLines) {
  const auto said = refusal<ConfigError>([] { parse_host_file("n1\nn2\nn1\n", "my.hosts", RepeatedHost::kRefused); });
  EXPECT_SAYS(said, "my.hosts:3: n1 has a line already (1)");
}

TEST(HostFile, AHostIsRepeatedInAnyOfItsSpellings) {
  EXPECT_SAYS(refused("n1\nN1\n"), "h:2: N1 has a line already (1)");
  EXPECT_SAYS(refused("n1\nn2\nn1.site.org\n"), "h:3: n1.site.org has a line already (1)");
  EXPECT_SAYS(refused("n2\nn1.site.org\nn1\n"), "h:3: n1 has a line already (2)");
  EXPECT_EQ(parse_host_file("n1.a.org\nn1.b.org\n10.0.0.1\n10.0.0.2\n", "h", RepeatedHost::kRefused).size(), 4u);
}

TEST(HostFile, EmptyFilesAndOtherWordsAreRefused) {
  EXPECT_SAYS(refused("# nothing\n\n"), "h: there is no host in it");
  EXPECT_SAYS(refused("n1 slots=0"), "h:1: expected a number of slots from 1 to 65536, got \"0\"");
  EXPECT_SAYS(refused("n1\nn2 slots=4x"), "h:2: expected a number of slots");
  EXPECT_SAYS(refused("n1 user=root"), "got \"user=root\"");
  EXPECT_SAYS(refused("n1:2 slots=4"), "got \"slots=4\"");
  EXPECT_SAYS(refused("$(reboot)"), "is no name of a host");
}

TEST(HostFile, AHostIsTheSameWithAndWithoutItsDomain) {
  EXPECT_TRUE(is_same_host("n1", "n1.site.org"));
  EXPECT_TRUE(is_same_host("n1.site.org", "n1"));
  EXPECT_FALSE(is_same_host("n1", "n10.site.org"));
  EXPECT_FALSE(is_same_host("10.0", "10.0.0.1"));
}

}  // namespace host_list_test
}  // namespace athanor::launch
