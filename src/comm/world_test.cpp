#include "comm/world.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/process.h"
#include "comm/testing/collectives.h"
#include "comm/thread_ranks.h"
#include "comm/wire_world.h"

namespace athanor::comm::world_test {
namespace {

/// Sets a launcher's variables while it lives, and no others.
class Launcher {
 public:
  explicit Launcher(const std::map<std::string, std::string>& variables) {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "SLURM_NTASKS"}) {
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    names_ = variables;
  }
  ~Launcher() {
    for (const auto& [name, value] : names_) ::unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::string> names_;
};

TEST(World, WithoutALauncherThereIsOneRankWhoseCollectivesCopy) {
  const Launcher none({});
  const std::unique_ptr<World> world = World::open({});
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->host(), host_name());
  const Tensor in = at::arange(5, at::kFloat), out = at::zeros({5});
  world->all().reduce_scatter(out, in).wait();
  EXPECT_TRUE(same_bits(out, in));
  const std::vector<int64_t> rows{5};
  const Tensor other = at::zeros({5});
  const Pending pending = world->all().all_to_all(other, in, rows, rows);
  EXPECT_TRUE(pending.done());
  EXPECT_TRUE(same_bits(other, in));
  world->all().barrier();
  const auto group = world->make_group({{0}}, "data");
  EXPECT_EQ(group->size(), 1);
  EXPECT_EQ(world->all().traffic().bytes(), 0);
}

TEST(World, OneFakeRankHasAllGroupsAndNoPeers) {
  const std::unique_ptr<World> world = World::open({.check = true, .fake_rank = 5, .fake_size = 8});
  EXPECT_EQ(world->rank(), 5);
  const auto group = world->make_group({{0, 2, 4, 6}, {1, 3, 5, 7}}, "odd");
  EXPECT_EQ(group->rank(), 2);
  EXPECT_EQ(group->size(), 4);
  const Tensor out = at::ones({4, 3}), in = at::full({3}, 7.0f);
  group->all_gather(out, in).wait();
  EXPECT_EQ(out.sum().item<float>(), 21);
  EXPECT_EQ(out[2].sum().item<float>(), 21);
  const Tensor part = at::zeros({3});
  group->reduce_scatter(part, at::arange(12, at::kFloat)).wait();
  EXPECT_EQ(part[0].item<float>(), 6);
  const std::vector<int64_t> in_rows{1, 0, 2, 1}, out_rows{0, 3, 2, 0};
  const Tensor rows = at::ones({5, 2});
  group->all_to_all(rows, at::full({4, 2}, 3.0f), out_rows, in_rows).wait();
  EXPECT_EQ(rows.sum().item<float>(), 12);
  EXPECT_EQ(rows[3].sum().item<float>(), 6);
  const Tensor x = at::ones({4});
  group->all_reduce(x).wait();
  EXPECT_EQ(x.sum().item<float>(), 4);
  group->broadcast(x, 0).wait();
  EXPECT_EQ(x.sum().item<float>(), 0);
  group->send(x, 0).wait();
  group->receive(x, 0).wait();
  group->barrier();
  EXPECT_EQ(group->traffic().bytes_of.at(Collective::kReduceScatter), 3 * 12);
  EXPECT_THROW(World::open({.fake_rank = 8, .fake_size = 8}), ConfigError);
}

TEST(World, SupernodesFollowTheHostsOrTheNumbersGiven) {
  const std::vector<std::string> hosts{"a", "a", "b", "b", "c", "a"};
  EXPECT_EQ(supernodes_of(hosts, 0, 0), (std::vector<int>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(supernodes_of(hosts, 0, 1), (std::vector<int>{0, 0, 1, 1, 2, 0}));
  EXPECT_EQ(supernodes_of(hosts, 0, 2), (std::vector<int>{0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(supernodes_of(hosts, 1, 2), (std::vector<int>{0, 0, 1, 1, 2, 2}));
}

TEST(World, APartitionHoldsEachRankOnce) {
  EXPECT_EQ(group_with(2, 4, {{0, 1}, {3, 2}}), (std::vector<int>{3, 2}));
  EXPECT_THROW(group_with(0, 4, {{0, 1}, {2}}), Error);
  EXPECT_THROW(group_with(0, 4, {{0, 1}, {2, 3, 1}}), Error);
  EXPECT_THROW(group_with(0, 4, {{0, 1}, {2, 3, 4}}), Error);
}

TEST(World, ARankThatThrowsLeavesWithoutWaitingForTheOthers) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(run_ranks(3,
                         [](World& world) {
                           const Tensor x = at::ones({10});
                           if (world.rank() == 1) throw DataError("broken");
                           world.all().all_reduce(x).wait();
                         },
                         {.timeout = std::chrono::milliseconds(200)}),
               Error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace athanor::comm::world_test
