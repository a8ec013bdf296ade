// Two levels of groups of devices that the host plays: nothing that a hop sends is freed before it has been sent.

#include <gtest/gtest.h>

#include "comm/testing/collectives.h"
#include "comm/testing/guarded_groups.h"
#include "comm/two_level.h"

namespace athanor::comm::two_level_device_test {
namespace {

using guarded::Order;

constexpr int kRanks = 4;

// Calls `body` on four devices, two in each of two nodes, in each order of their streams.
void in_each_order(const std::function<void(TwoLevel&, at::Device)>& body) {
  for (const Order order : {Order{Order::Kind::kEarliest}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 1},
                            Order{Order::Kind::kDrawn, 2}}) {
    run_device_ranks(kRanks, [&](World& world, at::Device device) {
      guarded::queues().set_order(order);
      const auto inner = world.make_group({{0, 1}, {2, 3}}, "inner", device),
                 outer = world.make_group({{0, 2}, {1, 3}}, "outer", device);
      TwoLevel two(*inner, *outer);
      body(two, device);
      guarded::queues().synchronize_all();
      guarded::queues().set_order({});
    });
  }
}

std::vector<Tensor> terms_of_all(int64_t count, at::ScalarType type) {
  std::vector<Tensor> terms;
  for (int rank = 0; rank < kRanks; ++rank) terms.push_back(term_of(rank, 1, count, type));
  return terms;
}

TEST(TwoLevelOnDevices, SumsHaveTheBitsOfTheTree) {
  in_each_order([](TwoLevel& two, at::Device device) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const auto reduction : {Reduction::kSum, Reduction::kMean, Reduction::kMax}) {
        const auto terms = terms_of_all(4 * 1001, type);
        const Tensor x = terms[static_cast<size_t>(two.rank())].to(device), part = at::empty({1001}, x.options());
        two.reduce_scatter(part, x, reduction).wait();
        const Tensor expected = tree_of(terms, reduction);
        require(same_bits(guarded::to_host(part), expected.narrow(0, two.rank() * 1001, 1001)), "reduce-scatter");
        two.all_reduce(x, reduction).wait();
        require(same_bits(guarded::to_host(x), expected), "all-reduce");
        const Tensor all = at::empty_like(x);
        two.all_gather(all, part).wait();
        require(same_bits(guarded::to_host(all), expected), "all-gather");
      }
    }
  });
}

// Rank r sends r + p + 1 rows to rank p, with the number 10 r + p.
TEST(TwoLevelOnDevices, AllToAllBringsWhatWasSent) {
  in_each_order([](TwoLevel& two, at::Device device) {
    std::vector<int64_t> rows;
    std::vector<Tensor> sent, expected, even;
    for (int p = 0; p < kRanks; ++p) {
      rows.push_back(two.rank() + p + 1);
      sent.push_back(at::full({rows.back(), 3}, 10.0 * two.rank() + p));
      expected.push_back(at::full({rows.back(), 3}, 10.0 * p + two.rank()));
      even.push_back(at::full({5}, 10.0 * p + two.rank()));
    }
    const Tensor in = at::cat(sent).to(device), out = at::empty_like(in);
    two.all_to_all(out, in, rows, rows).wait();
    require(same_bits(guarded::to_host(out), at::cat(expected)), "uneven all-to-all");
    const Tensor x = (at::arange(kRanks).repeat_interleave(5).to(at::kFloat) + 10.0 * two.rank()).to(device),
                 y = at::empty_like(x);
    two.all_to_all(y, x).wait();
    require(same_bits(guarded::to_host(y), at::cat(even)), "all-to-all");
  });
}

}  // namespace
}  // namespace athanor::comm::two_level_device_test
