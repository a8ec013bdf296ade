// Compares the bytes that a communicator counts with those that went over the wire.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <thread>

#include "comm/host_backend.h"
#include "comm/testing/collectives.h"
#include "comm/thread_ranks.h"

namespace athanor::comm::traffic_test {
namespace {

/// Runs `call` on n ranks, and compares the count of each rank with the bytes that it sent.
void expect_counted_as_sent(int n, const std::string& what, const std::function<void(Communicator&)>& call,
                            NodeShape shape = {}) {
  std::vector<std::unique_ptr<Wire>> wires = thread_wires(n);
  std::vector<std::vector<int64_t>> counted(static_cast<size_t>(n)), sent(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  std::atomic<int> num_over = 0;
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      const auto at = static_cast<size_t>(r);
      auto pump = std::make_shared<MessagePump>(std::move(wires[at]));
      GroupOptions options;
      options.name = "test";
      for (int i = 0; i < n; ++i) {
        options.world_ranks.push_back(i);
        options.supernode.push_back(i / 2);
      }
      options.shape = shape;
      auto backend = c10::make_intrusive<HostBackend>(pump, options.world_ranks, r, 0, "", shape);
      Communicator group(options, backend, r);
      call(group);
      counted[at] = group.traffic().bytes_to;
      sent[at] = backend->bytes_sent();
      const Traffic& traffic = group.traffic();
      int64_t inside = 0, all = 0;
      for (int i = 0; i < n; ++i) {
        all += counted[at][static_cast<size_t>(i)];
        if (i / 2 == r / 2) inside += counted[at][static_cast<size_t>(i)];
      }
      if (traffic.bytes() != all || traffic.bytes_inside != inside) counted[at] = {-1};
      ++num_over;
      while (num_over < n) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(counted[static_cast<size_t>(r)], sent[static_cast<size_t>(r)]) << what << ", rank " << r << " of " << n;
  }
}

TEST(Traffic, CountedBytesAreThoseOnTheWireInTwoLevelsToo) {
  for (const NodeShape shape : {NodeShape{2, 2}, NodeShape{3, 2}, NodeShape{2, 4}}) {
    const int n = shape.per_node * shape.nodes;
    for (const int64_t count : {1, 100, 10'007}) {
      for (const at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
        const std::string what = fmt::format("{} {} on nodes of {}", count, c10::toString(type), shape.per_node);
        const auto ones = [=](int64_t times) { return at::ones({times * count}, type); };
        expect_counted_as_sent(
            n, "all_reduce of " + what, [&](Communicator& group) { group.all_reduce(ones(1)).wait(); }, shape);
        expect_counted_as_sent(
            n, "reduce_scatter of " + what, [&](Communicator& group) { group.reduce_scatter(ones(1), ones(n)).wait(); },
            shape);
        expect_counted_as_sent(
            n, "all_gather of " + what, [&](Communicator& group) { group.all_gather(ones(n), ones(1)).wait(); }, shape);
      }
    }
  }
}

TEST(Traffic, CountedBytesOfSmallGathersInLargeGroupsAreThoseOnTheWire) {
  for (const int n : {17, 20}) {
    for (const int64_t count : {0, 3, 60'000}) {
      expect_counted_as_sent(n, fmt::format("all_gather of {}", count), [&](Communicator& group) {
        group.all_gather(at::ones({n, count}), at::ones({count})).wait();
      });
    }
  }
}

TEST(Traffic, CountedBytesAreThoseOnTheWire) {
  for (int n : {2, 3, 4, 6, 7}) {
    for (int64_t count : {0, 1, 5, 100, 2048, 2049, 10'007}) {
      for (at::ScalarType type : {at::kBFloat16, at::kFloat, at::kDouble}) {
        const std::string what = fmt::format("{} {}", count, c10::toString(type));
        expect_counted_as_sent(n, "all_reduce of " + what,
                               [&](Communicator& group) { group.all_reduce(at::ones({count}, type)).wait(); });
      }
      const std::string what = fmt::format("{}", count);
      expect_counted_as_sent(n, "reduce_scatter of " + what, [&](Communicator& group) {
        group.reduce_scatter(at::ones({count}), at::ones({n, count})).wait();
      });
      expect_counted_as_sent(n, "all_gather of " + what, [&](Communicator& group) {
        group.all_gather(at::ones({n, count}), at::ones({count})).wait();
      });
      expect_counted_as_sent(n, "all_to_all of " + what, [&](Communicator& group) {
        group.all_to_all(at::ones({n, count}), at::ones({n, count})).wait();
      });
      expect_counted_as_sent(n, "broadcast of " + what,
                             [&](Communicator& group) { group.broadcast(at::ones({count}), n - 1).wait(); });
    }
    expect_counted_as_sent(n, "barrier", [&](Communicator& group) { group.barrier(); });
    expect_counted_as_sent(n, "send", [&](Communicator& group) {
      if (group.rank() == 0) group.send(at::ones({7}), 1).wait();
      if (group.rank() == 1) group.receive(at::ones({7}), 0).wait();
    });
  }
}

TEST(Traffic, TheHeadersFormulasHold) {
  run_ranks(4, [](World& world) {
    Communicator& group = world.all();
    const int64_t b = 4 * 4 * 1000, n = 4;
    const auto bytes_of = [&](Collective collective) { return group.traffic().bytes_of.at(collective); };
    group.reset_traffic();
    group.all_reduce(at::ones({4000})).wait();
    require(bytes_of(Collective::kAllReduce) == 2 * b * (n - 1) / n, "all_reduce");
    group.reduce_scatter(at::ones({1000}), at::ones({4000})).wait();
    require(bytes_of(Collective::kReduceScatter) == b * (n - 1) / n, "reduce_scatter");
    group.all_gather(at::ones({4000}), at::ones({1000})).wait();
    require(bytes_of(Collective::kAllGather) == b * (n - 1) / n, "all_gather");
    group.all_to_all(at::ones({4000}), at::ones({4000})).wait();
    require(bytes_of(Collective::kAllToAll) == b * (n - 1) / n, "all_to_all");
    group.broadcast(at::ones({4000}), 1).wait();
    require(bytes_of(Collective::kBroadcast) <= b * 2, "broadcast");
    require(group.traffic().calls == 5 && group.traffic().calls_of.at(Collective::kAllGather) == 1, "calls");
    require(group.traffic().waited_s > 0, "time");
    group.reset_traffic();
    group.all_reduce(at::ones({100}, at::kBFloat16)).wait();
    require(bytes_of(Collective::kAllReduce) <= 2 * 400 * 2, "a small all_reduce");
  });
}

}  // namespace
}  // namespace athanor::comm::traffic_test
