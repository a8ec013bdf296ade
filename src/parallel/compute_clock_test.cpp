#include "parallel/compute_clock.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>

#include "comm/testing/collectives.h"
#include "comm/testing/guarded_groups.h"
#include "ops/transfer.h"

namespace athanor::compute_clock_test {
namespace {

using comm::require;
using guarded::Order;

const Order kOrders[] = {Order{Order::Kind::kEarliest}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 1},
                         Order{Order::Kind::kDrawn, 2}};
constexpr int kRanks = 4, kSlow = 2;

double ms_of_launch(int rank) { return rank == kSlow ? 3 : 1; }

// A step of 15 launches, in which the ranks wait for one another twice, and for a message from the slow one.
double step(ComputeClock& clock, comm::Communicator& group, const Tensor& x) {
  clock.begin_step();
  clock.start();
  for (int i = 0; i < 10; ++i) x.add_(1);
  group.all_reduce(x).wait();
  if (group.rank() == kSlow) group.send(x, 0).wait();
  if (group.rank() == 0) group.receive(x, kSlow).wait();
  clock.stop();
  for (int i = 0; i < 100; ++i) x.mul_(1);  // between two spans
  clock.start();
  for (int i = 0; i < 5; ++i) x.mul_(0.5);
  group.all_reduce(x).wait();
  clock.stop();
  for (int i = 0; i < 100; ++i) x.mul_(1);
  ops::fetch(x);
  return clock.seconds().value_or(-1);
}

// Runs `body` on each of four devices, of which one takes three times as long for everything.
void on_devices(const Order& order, const std::function<void(comm::Communicator&, at::Device)>& body) {
  comm::run_device_ranks(kRanks, [&](comm::World& world, at::Device device) {
    guarded::queues().set_order(order);
    guarded::queues().keep_time(ms_of_launch(world.rank()));
    const auto group = world.make_group({{0, 1, 2, 3}}, "all", device);
    body(*group, device);
    guarded::queues().synchronize_all();
    world.all().barrier();
    guarded::queues().keep_time(0);
    guarded::queues().set_order({});
  });
}

TEST(ComputeClock, ItsSpansAreWhatItsTimeIsMadeOf) {
  on_devices({}, [](comm::Communicator& group, at::Device device) {
    const auto clock = std::make_shared<ComputeClock>(device);
    group.show_stalls(clock);
    const Tensor x = at::ones({8}, device);
    SpanLog log;
    log.start();
    const double seconds = step(*clock, group, x);
    clock->add_spans(log);
    double sum = 0;
    int computes = 0, waits = 0;
    for (const Span& span : log.stop().spans) {
      require(span.row == Span::Row::kDevice && span.begin_ns <= span.end_ns, "a span of the device");
      const double length = 1e-9 * static_cast<double>(span.end_ns - span.begin_ns);
      const bool computes_then = span.name == "compute";
      sum += computes_then ? length : -length;
      ++(computes_then ? computes : waits);
    }
    require(computes == 2 && waits == (group.rank() == 0 || group.rank() == kSlow ? 3 : 2), "two spans, and its waits");
    require(std::abs(sum - seconds) < 1e-6, "they add up to its time");
  });
}

TEST(ComputeClock, ADevicesTimeIsThatOfItsOwnWorkHoweverLongItWaitsForASlowOne) {
  for (const Order& order : kOrders) {
    on_devices(order, [](comm::Communicator& group, at::Device device) {
      const auto clock = std::make_shared<ComputeClock>(device);
      group.show_stalls(clock);
      const Tensor x = at::ones({64}).to(device);
      const double expected = 15e-3 * ms_of_launch(group.rank());
      for (int i = 0; i < 3; ++i) {
        const double found = step(*clock, group, x);
        require(std::abs(found - expected) < 1e-9, fmt::format("{} s on rank {}", found, group.rank()));
      }
    });
  }
}

TEST(ComputeClock, WithoutTheStallsAllWouldTakeAsLongAsTheSlowOne) {
  on_devices({}, [](comm::Communicator& group, at::Device device) {
    ComputeClock clock(device);
    const Tensor x = at::ones({64}).to(device);
    group.all_reduce(x).wait();  // they begin together
    for (int i = 0; i < 3; ++i) require(step(clock, group, x) >= 45e-3, "less than the slow rank's own work");
  });
}

TEST(ComputeClock, TheHostNeverWaitsForItAndItsEventsAreUsedAgain) {
  for (const Order& order : kOrders) {
    on_devices(order, [](comm::Communicator& group, at::Device device) {
      const Tensor x = at::ones({64}).to(device);
      const auto clock = std::make_shared<ComputeClock>(device);
      group.show_stalls(clock);
      const auto before = guarded::queues().counts().waits;
      size_t pairs = 0;
      for (int i = 0; i < 4; ++i) {
        step(*clock, group, x);
        if (i == 0) pairs = clock->num_pairs();
      }
      require(guarded::queues().counts().waits - before == 4, "one wait for each fetch");
      const size_t stalls = 2 + (group.rank() == kSlow || group.rank() == 0);
      require(pairs == 2 + stalls && clock->num_pairs() == pairs, "pairs of events");
    });
  }
}

TEST(ComputeClock, WaitsOfOtherStreamsAndOutsideOfSpansDoNotCount) {
  on_devices({}, [](comm::Communicator& group, at::Device device) {
    const auto clock = std::make_shared<ComputeClock>(device);
    group.show_stalls(clock);
    const Tensor x = at::ones({64}).to(device);
    clock->begin_step();
    group.all_reduce(x).wait();
    clock->start();
    x.add_(1);
    comm::Pending aside = group.all_reduce(x);
    const c10::Stream other = c10::impl::VirtualGuardImpl(device.type()).getNewStream(device);
    {
      const c10::StreamGuard on_other(other);
      aside.wait();
    }
    clock->stop();
    require(clock->num_pairs() == 1, "the span alone");
    ops::fetch(x);
    guarded::queues().synchronize_all();
    require(std::abs(*clock->seconds() - 1e-3 * ms_of_launch(group.rank())) < 1e-9, "one launch");
  });
}

}  // namespace
}  // namespace athanor::compute_clock_test
