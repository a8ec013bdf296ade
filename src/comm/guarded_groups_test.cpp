// Groups of ranks that each drive a device, on devices that the host plays.

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/testing/collectives.h"
#include "comm/testing/guarded_groups.h"

namespace athanor::comm::guarded_groups_test {
namespace {

using guarded::Order;

std::vector<std::vector<int>> everyone(const World& world) {
  std::vector<int> all;
  for (int r = 0; r < world.size(); ++r) all.push_back(r);
  return {all};
}

// Calls `body` in each order, with a group of four devices.
void in_each_order(const std::function<void(Communicator&, at::Device)>& body, int size = 4) {
  for (const Order order : {Order{Order::Kind::kEarliest}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 1},
                            Order{Order::Kind::kDrawn, 2}, Order{Order::Kind::kDrawn, 3}}) {
    run_device_ranks(size, [&](World& world, at::Device device) {
      guarded::queues().set_order(order);
      const auto group = world.make_group(everyone(world), "all", device);
      body(*group, device);
    });
  }
}

std::vector<Tensor> terms_of(int size, int call, int64_t count, at::ScalarType type) {
  std::vector<Tensor> terms;
  for (int r = 0; r < size; ++r) terms.push_back(term_of(r, call, count, type));
  return terms;
}

TEST(GuardedGroups, SumsHaveTheBitsOfTheHostsTreeInEachOrder) {
  in_each_order([](Communicator& group, at::Device device) {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong}) {
      const auto terms = terms_of(group.size(), 1, 1000, type);
      const Tensor x = terms[static_cast<size_t>(group.rank())].to(device);
      group.all_reduce(x).wait();
      require(same_bits(guarded::to_host(x), tree_of(terms, Reduction::kSum)), "all-reduce");
      const Tensor whole = terms[static_cast<size_t>(group.rank())].to(device);
      const Tensor part = whole.narrow(0, group.rank() * 250, 250);
      group.reduce_scatter(part, whole).wait();
      require(same_bits(guarded::to_host(part), tree_of(terms, Reduction::kSum).narrow(0, group.rank() * 250, 250)),
              "reduce-scatter");
      group.all_gather(whole, part).wait();
      require(same_bits(guarded::to_host(whole), tree_of(terms, Reduction::kSum)), "all-gather");
    }
  });
}

TEST(GuardedGroups, RowsAndBroadcastsArrive) {
  in_each_order([](Communicator& group, at::Device device) {
    const int n = group.size(), me = group.rank();
    std::vector<int64_t> to, from;
    int64_t rows = 0, received = 0;
    for (int p = 0; p < n; ++p) {
      to.push_back((me + 2 * p) % 3), from.push_back((p + 2 * me) % 3);
      rows += to.back(), received += from.back();
    }
    const Tensor in = at::full({rows, 5}, me, at::kFloat).to(device), out = at::empty({received, 5}, in.options());
    group.all_to_all(out, in, from, to).wait();
    std::vector<Tensor> expected;
    for (int p = 0; p < n; ++p) expected.push_back(at::full({from[static_cast<size_t>(p)], 5}, p, at::kFloat));
    require(same_bits(guarded::to_host(out), at::cat(expected)), "all-to-all");
    const Tensor x = at::full({7}, me, at::kLong).to(device);
    group.broadcast(x, 2).wait();
    require(same_bits(guarded::to_host(x), at::full({7}, 2, at::kLong)), "broadcast");
  });
}

TEST(GuardedGroups, TwoRanksThatSendToEachOtherFirstDoNotBlock) {
  in_each_order([](Communicator& group, at::Device device) {
    const int peer = group.rank() ^ 1;
    const Tensor mine = at::full({100}, group.rank(), at::kFloat).to(device), theirs = at::empty_like(mine);
    Pending sent = group.send(mine, peer);
    group.receive(theirs, peer).wait();
    sent.wait();
    require(same_bits(guarded::to_host(theirs), at::full({100}, peer, at::kFloat)), "the other's");
  });
}

TEST(GuardedGroups, TheHostDoesNotWait) {
  in_each_order([](Communicator& group, at::Device device) {
    const Tensor x = at::ones({100}).to(device);
    const int64_t before = guarded::queues().counts().waits;
    for (int i = 0; i < 10; ++i) {
      group.all_reduce(x).wait();
      x.mul_(0.25);
    }
    require(guarded::queues().counts().waits == before, "waits");
    require(same_bits(guarded::to_host(x), at::ones({100})), "sums");
  });
}

TEST(GuardedGroups, ATensorThatIsUsedBeforeItsCollectiveIsOverIsWrongInSomeOrder) {
  std::atomic<int> num_wrong{0};
  in_each_order([&](Communicator& group, at::Device device) {
    const Tensor x = at::ones({100}).to(device);
    Pending pending = group.all_reduce(x);
    x.add_(1);  // before the wait
    pending.wait();
    if (!same_bits(guarded::to_host(x), at::full({100}, 5.0f))) ++num_wrong;
  });
  EXPECT_GT(num_wrong, 0);
}

TEST(GuardedGroups, ATensorIsFreedWhenItsCallHasBeenWaitedFor) {
  in_each_order([](Communicator& group, at::Device device) {
    const guarded::Memory& memory = guarded::memory(device.index());
    guarded::queues().synchronize_all();
    const size_t before = memory.allocated();
    for (int i = 0; i < 10; ++i) {
      const Tensor x = at::ones({1 << 18}).to(device), all = at::empty({4 << 18}, x.options());
      group.all_gather(all, x).wait();
    }
    guarded::queues().synchronize_all();
    require(memory.allocated() == before, "memory");
  });
}

TEST(GuardedGroups, CheckModeComparesCalls) {
  WorldOptions options;
  options.check = true;
  EXPECT_THROW(run_device_ranks(
                   2,
                   [](World& world, at::Device device) {
                     const auto group = world.make_group(everyone(world), "all", device);
                     const Tensor x = at::ones({world.rank() == 0 ? 4 : 8}).to(device);
                     group->all_reduce(x).wait();
                   },
                   options),
               CommError);
}

}  // namespace
}  // namespace athanor::comm::guarded_groups_test
