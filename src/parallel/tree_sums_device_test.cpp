// Sums along the tree between devices that the host plays (comm/device_backend.cpp with ops/device/sum_terms.h).

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/testing/collectives.h"
#include "comm/testing/guarded_groups.h"
#include "ops/device/sum_terms.h"

namespace athanor::tree_sums_device_test {
namespace {

using comm::Reduction;
using comm::require;
using comm::same_bits;
using comm::tree_of;
using guarded::Order;

/// A library whose sums of floating-point numbers must not be used.
struct WithoutSums : comm::GuardedGroup {
  using GuardedGroup::GuardedGroup;

  Work allreduce(std::vector<Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    refuse(tensors.at(0), options.reduceOp);
    return GuardedGroup::allreduce(tensors, options);
  }
  Work _reduce_scatter_base(Tensor& out, Tensor& in, const c10d::ReduceScatterOptions& options) override {
    refuse(in, options.reduceOp);
    return GuardedGroup::_reduce_scatter_base(out, in, options);
  }
  static void refuse(const Tensor& x, const c10d::ReduceOp& op) {
    if (x.is_floating_point() && op != c10d::ReduceOp::MAX) fail<Error>("a sum of the library");
  }
};

const Order kOrders[] = {Order{Order::Kind::kEarliest}, Order{Order::Kind::kLatest},   Order{Order::Kind::kDrawn, 1},
                         Order{Order::Kind::kDrawn, 2}, Order{Order::Kind::kDrawn, 3}, Order{Order::Kind::kDrawn, 4}};

void in_each_order(int size, const std::function<void(comm::Communicator&, at::Device)>& body) {
  std::vector<int> all;
  for (int r = 0; r < size; ++r) all.push_back(r);
  for (const Order& order : kOrders) {
    const auto rank = [&](comm::World& world, at::Device device) {
      guarded::queues().set_order(order);
      const auto group = world.make_group({all}, "all", device, &ops::device::sum_terms);
      body(*group, device);
    };
    comm::run_device_ranks(size, rank, {}, {}, &comm::open_guarded<WithoutSums>);
  }
}

std::vector<Tensor> terms_of(int size, int64_t count, at::ScalarType type) {
  std::vector<Tensor> terms;
  for (int r = 0; r < size; ++r) terms.push_back(comm::term_of(r, 1, count, type));
  return terms;
}

struct Terms {
  std::vector<Tensor> of_ranks;
  Tensor own;  // on the device, where it is still to be computed

  Terms(const comm::Communicator& group, at::Device device, int64_t count, at::ScalarType type)
      : Terms(group, device, terms_of(group.size(), count, type)) {}
  Terms(const comm::Communicator& group, at::Device device, std::vector<Tensor> terms) : of_ranks(std::move(terms)) {
    own = of_ranks[static_cast<size_t>(group.rank())].to(device);
    for (int i = 0; i < 8; ++i) own = own.mul(1);
  }
};

TEST(TreeSumsOnDevice, HaveTheBitsOfTheHostsInEachTypeAndOrder) {
  for (const int size : {2, 3, 4}) {
    in_each_order(size, [](comm::Communicator& group, at::Device device) {
      for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong}) {
        for (const int64_t count : {7, 1200}) {
          const Terms terms(group, device, count, type);
          group.all_reduce(terms.own).wait();
          require(same_bits(guarded::to_host(terms.own), tree_of(terms.of_ranks, Reduction::kSum)),
                  fmt::format("all-reduce of {} on {}", count, group.size()));
        }
      }
    });
  }
}

TEST(TreeSumsOnDevice, OfLargeTensorsAreAddedInPartsWithTheSameBits) {
  const int64_t count = (int64_t{4} << 20) / 3 / 4 + 3;  // no multiple of 3
  const std::vector<Tensor> of_ranks = terms_of(3, count, at::kFloat);
  const Tensor expected = tree_of(of_ranks, Reduction::kSum);
  in_each_order(3, [&](comm::Communicator& group, at::Device device) {
    const Terms terms(group, device, of_ranks);
    group.all_reduce(terms.own).wait();
    require(same_bits(guarded::to_host(terms.own), expected), "all-reduce");
  });
}

TEST(TreeSumsOnDevice, OfPartsMayOverwriteTheirInputAndMeansAreScaledAsOnHosts) {
  in_each_order(3, [](comm::Communicator& group, at::Device device) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const auto reduction : {Reduction::kSum, Reduction::kMean, Reduction::kMax}) {
        const Terms terms(group, device, 1200, type);
        const Tensor part = terms.own.narrow(0, group.rank() * 400, 400);
        group.reduce_scatter(part, terms.own, reduction).wait();
        const Tensor expected = tree_of(terms.of_ranks, reduction).narrow(0, group.rank() * 400, 400);
        require(same_bits(guarded::to_host(part), expected), "reduce-scatter");
      }
      const Terms terms(group, device, 1200, type);
      group.all_reduce(terms.own, Reduction::kMean).wait();
      require(same_bits(guarded::to_host(terms.own), tree_of(terms.of_ranks, Reduction::kMean)), "mean");
    }
  });
}

// Memory that the caller gives back before a sum is over is not handed out to others before.
TEST(TreeSumsOnDevice, LetTheHostAndTheCallersStreamContinue) {
  in_each_order(2, [](comm::Communicator& group, at::Device device) {
    const int64_t waits = guarded::queues().counts().waits;
    const Tensor part = at::empty({300}, at::TensorOptions(device).dtype(at::kFloat));
    comm::Pending pending;
    {
      const Tensor whole = at::full({600}, group.rank() + 1.0f, part.options());
      pending = group.reduce_scatter(part, whole);
    }
    const Tensor next = at::full({600}, 100.0f, part.options());  // in the same place if that is free
    pending.wait();
    require(guarded::queues().counts().waits == waits, "waits");
    require(same_bits(guarded::to_host(part), at::full({300}, 3.0f)), "sum");
    require(same_bits(guarded::to_host(next), at::full({600}, 100.0f)), "next");
  });
}

}  // namespace
}  // namespace athanor::tree_sums_device_test
