#include "layout/communicator_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace athanor::communicator_memory_test {
namespace {

constexpr double kMiB = 1 << 20, kPair = 12 * kMiB;  // one connection to a rank, and one from it

struct Degrees {
  int data = 1, expert = 1, tensor = 1, pipeline = 1;
  int world() const { return data * tensor * pipeline; }
};

RunConfig config_of(const Degrees& d) {
  RunConfig config;
  config.model.num_experts = 16;
  config.model.num_experts_per_tok = 4;
  config.parallelism.data_parallel_shard_degree = d.data;
  config.parallelism.expert_parallel_degree = d.expert;
  config.parallelism.tensor_parallel_degree = d.tensor;
  config.parallelism.pipeline_parallel_degree = d.pipeline;
  config.train.global_batch_size = int64_t{4} * d.data * d.pipeline;
  return config;
}

// What a rank of such a layout sends.
std::vector<RankTraffic> sent_by(const Degrees& d, const Layout& layout, int rank) {
  std::vector<RankTraffic> sent = {
      {TrafficPurpose::kGradients, Collective::kReduceScatter, GroupKind::kData},
      {TrafficPurpose::kGradients, Collective::kReduceScatter, GroupKind::kExpertData},
      {TrafficPurpose::kLosses, Collective::kAllReduce, GroupKind::kModel},
      {TrafficPurpose::kLosses, Collective::kAllReduce, GroupKind::kPipeline},
      {TrafficPurpose::kTokens, Collective::kAllToAll, GroupKind::kExpert},
  };
  const int stage = layout.coordinate(rank, Axis::kPipeline);
  for (const int to : {stage - 1, stage + 1})
    if (to >= 0 && to < d.pipeline)
      sent.push_back({TrafficPurpose::kStages, Collective::kSend, GroupKind::kPipeline, to});
  return sent;
}

std::map<std::string, OpenedGroup> opened(const Degrees& d, int rank, const std::vector<int>& hosts = {}) {
  std::map<std::string, OpenedGroup> named;
  const Layout layout(config_of(d), d.world());
  for (const OpenedGroup& each : opened_groups(layout, rank, sent_by(d, layout, rank), hosts))
    named.emplace(group_name(each.group), each);
  return named;
}

TEST(OpenedGroups, OneRankHasNone) { EXPECT_TRUE(opened({}, 0).empty()); }

// 24 channels; two ranks have no tree next to their ring.
TEST(OpenedGroups, CollectivesHaveARingAndATree) {
  const auto two = opened({.data = 2}, 0), eight = opened({.data = 8}, 3);
  ASSERT_EQ(two.size(), 2u);
  for (const char* group : {"data", "expert_data"}) EXPECT_EQ(two.at(group).bytes, 24 * kPair) << group;
  EXPECT_EQ(eight.at("data").bytes, 24 * 2 * kPair);
  EXPECT_EQ(eight.at("data").communicators, 1);
}

TEST(OpenedGroups, AllToAllConnectsEachPairOfAHostBy32Channels) {
  const auto eight = opened({.data = 8, .expert = 8}, 0);
  EXPECT_EQ(eight.at("expert").bytes, 7 * 32 * kPair);
  EXPECT_EQ(eight.at("expert").ranks, 8);
}

// Two hosts of four: fewer channels, and two buffers of 32 MiB for all that leaves the host.
TEST(OpenedGroups, AGroupOfSeveralHostsHasFewerChannelsAndSharesBuffersForOtherHosts) {
  const auto there = opened({.data = 8, .expert = 8}, 5, {0, 0, 0, 0, 1, 1, 1, 1});
  EXPECT_EQ(there.at("expert").bytes, 3 * 2 * kPair + 2 * 32 * kMiB);
  EXPECT_EQ(there.at("data").bytes, 16 * 2 * kPair);
}

TEST(OpenedGroups, APipelineSendsToNeighboursOverTwoMoreCommunicators) {
  for (const int rank : {0, 1, 3}) {
    const auto four = opened({.pipeline = 4}, rank);
    const double neighbours = rank == 1 ? 2 : 1;
    EXPECT_EQ(four.at("pipeline").bytes, 24 * 2 * kPair + neighbours * 32 * kPair) << rank;
    EXPECT_EQ(four.at("pipeline").communicators, 3);
    EXPECT_EQ(four.at("model").bytes, 24 * 2 * kPair);  // the gradient's norm
  }
}

TEST(OpenedGroups, NcclsVariablesLowerTheCount) {
  setenv("NCCL_MAX_NCHANNELS", "8", 1);
  EXPECT_EQ(opened({.data = 8, .expert = 8}, 0).at("expert").bytes, 7 * 8 * kPair);
  EXPECT_EQ(opened({.data = 8}, 0).at("data").bytes, 8 * 2 * kPair);
  setenv("NCCL_MAX_P2P_NCHANNELS", "4", 1);
  EXPECT_EQ(opened({.data = 8, .expert = 8}, 0).at("expert").bytes, 7 * 4 * kPair);
  setenv("NCCL_BUFFSIZE", "1048576", 1);  // 512 + 4800 + 1024 + 4 KiB are 4 times 2 MiB
  EXPECT_EQ(opened({.data = 8}, 0).at("data").bytes, 8 * 2 * (8 + 2) * kMiB);
  for (const char* name : {"NCCL_MAX_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_BUFFSIZE"}) unsetenv(name);
}

TEST(OpenedGroups, AreOnHostsOfRanksPerNodeInAPlan) {
  TopologyConfig topology;
  EXPECT_TRUE(planned_hosts(topology, 4).empty());
  topology.ranks_per_node = 2;
  EXPECT_EQ(planned_hosts(topology, 5), (std::vector<int>{0, 0, 1, 1, 2}));
}

}  // namespace
}  // namespace athanor::communicator_memory_test
