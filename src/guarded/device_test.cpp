#include "guarded/device.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace athanor::guarded_test {
namespace {

using at::Tensor;
using guarded::Order;

class Guarded : public ::testing::TestWithParam<Order> {
 protected:
  void SetUp() override {
    guarded::install();
    guarded::queues().set_order(GetParam());
  }
  void TearDown() override { guarded::queues().set_order({}); }
};

std::string name_of(const ::testing::TestParamInfo<Order>& info) {
  switch (info.param.kind) {
    case Order::Kind::kEarliest: return "Earliest";
    case Order::Kind::kLatest: return "Latest";
    case Order::Kind::kDrawn: break;
  }
  return "Drawn" + std::to_string(info.param.seed);
}

INSTANTIATE_TEST_SUITE_P(, Guarded,
                         ::testing::Values(Order{}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 1},
                                           Order{Order::Kind::kDrawn, 2}),
                         name_of);

Tensor there(const Tensor& x) { return guarded::to_device(x); }
Tensor here(const Tensor& x) { return guarded::to_host(x.detach()); }
at::TensorOptions on_device(at::ScalarType dtype = at::kFloat) {
  return at::TensorOptions(dtype).device(guarded::kDevice);
}

c10::Stream new_stream() { return c10::impl::VirtualGuardImpl(at::kPrivateUse1).getNewStream(guarded::kDevice); }

TEST_P(Guarded, OpsAndTheirGradientsAreThoseOfTheCpu) {
  const Tensor a = at::randn({3, 4}), b = at::randn({4, 5});
  const auto f = [](const Tensor& x, const Tensor& y) {
    return (at::mm(x, y).softmax(-1) * 2 + 1).sum(0, true).transpose(0, 1).contiguous();
  };
  Tensor on = there(a).requires_grad_(), on_host = a.clone().requires_grad_();
  const Tensor c = f(on, there(b)), expected = f(on_host, b);
  c.pow(2).sum().backward();
  expected.pow(2).sum().backward();
  EXPECT_TRUE(here(c).equal(expected.detach()));
  EXPECT_TRUE(here(on.grad()).equal(on_host.grad()));
}

TEST_P(Guarded, OpsWithoutShapeFunctionsAndOutputsWithoutElementsWork) {
  const Tensor i = at::arange(3, on_device(at::kLong));
  const Tensor x = at::zeros({5, 5}, on_device()).index_add_(0, i, at::ones({3, 5}, on_device()));
  EXPECT_EQ(at::where(x > 0, x, 2.0).sum().item<float>(), 15 + 20);
  EXPECT_TRUE(here(std::get<1>(x.topk(2, 1))).equal(std::get<1>(here(x).topk(2, 1))));
}

TEST_P(Guarded, TheHostCannotTouchItsMemory) {
  const Tensor x = at::ones({3}, on_device());
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fork of a process with autograd's threads could hang
  EXPECT_DEATH(static_cast<void>(static_cast<volatile float*>(x.data_ptr())[0]), "");
}

TEST_P(Guarded, WhatIsNotWaitedForIsNotThereInTheLatestOrder) {
  const Tensor x = at::full({4}, 7.0f, on_device());
  const Tensor to = at::empty({4}, at::TensorOptions().pinned_memory(true));
  to.copy_(x, /*non_blocking=*/true);
  const float early = to[0].item<float>();
  guarded::queues().synchronize_all();
  EXPECT_EQ(to[0].item<float>(), 7);
  if (GetParam().kind == Order::Kind::kEarliest) {
    EXPECT_EQ(early, 7);
  } else if (GetParam().kind == Order::Kind::kLatest) {
    EXPECT_NE(early, 7);
  }
}

TEST_P(Guarded, AnEventOrdersTwoStreamsAndItsAbsenceShows) {
  for (const bool with_event : {true, false}) {
    const c10::Stream side = new_stream();
    const Tensor x = at::zeros({4}, on_device());
    guarded::queues().synchronize_all();
    x.add_(1);
    c10::Event event(at::kPrivateUse1);
    event.record(c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStream(guarded::kDevice));
    Tensor y;
    {
      const c10::StreamGuard on_side(side);
      if (with_event) event.block(side);
      y = x * 2;
      const float value = y[0].item<float>();
      if (with_event || GetParam().kind == Order::Kind::kEarliest) {
        EXPECT_EQ(value, 2);
      } else if (GetParam().kind == Order::Kind::kLatest) {
        EXPECT_EQ(value, 0);
      }
    }
    guarded::queues().synchronize_all();
  }
}

// Two streams, one of which waits for the other.
TEST_P(Guarded, TheTimeThatItKeepsFollowsFromWhatWasSubmitted) {
  guarded::queues().keep_time(2);
  constexpr auto kWithTime = c10::EventFlag::BACKEND_DEFAULT;
  c10::Event begin(at::kPrivateUse1, kWithTime), on_side(at::kPrivateUse1), waits(at::kPrivateUse1, kWithTime),
      end(at::kPrivateUse1, kWithTime);
  const Tensor x = at::zeros({4}, on_device()), y = at::zeros({4}, on_device());
  guarded::queues().synchronize_all();
  const c10::Stream main = c10::impl::VirtualGuardImpl(at::kPrivateUse1).getStream(guarded::kDevice),
                    side = new_stream();
  for (int i = 0; i < 2; ++i) {  // the second time their events are known to have been reached
    begin.record(main);
    begin.block(side);
    x.add_(1);
    {
      const c10::StreamGuard guard(side);
      for (int k = 0; k < 7; ++k) y.add_(1);
    }
    on_side.record(side);
    if (i == 1) guarded::queues().synchronize_all();
    waits.record(main);
    on_side.block(main);
    x.add_(1);
    end.record(main);
    guarded::queues().synchronize_all();
    EXPECT_EQ(begin.elapsedTime(waits), 2);
    EXPECT_EQ(waits.elapsedTime(end), 6 * 2 + 2);
  }
  guarded::queues().keep_time(0);
}

TEST_P(Guarded, AFreedBlockIsReusedAtOnceUnlessItsUseIsRecorded) {
  const c10::Stream side = new_stream();
  for (const bool recorded : {true, false}) {
    Tensor x = at::full({4}, 3.0f, on_device());
    guarded::queues().synchronize_all();
    Tensor y;
    {
      const c10::StreamGuard on_side(side);
      y = x * 2;
      if (recorded) x.record_stream(side);
    }
    x = Tensor();
    const Tensor next = at::full({4}, 5.0f, on_device());
    next.sum().item<float>();
    guarded::queues().synchronize_all();
    if (recorded || GetParam().kind == Order::Kind::kEarliest) {
      EXPECT_EQ(here(y)[0].item<float>(), 6);
    } else if (GetParam().kind == Order::Kind::kLatest) {
      EXPECT_EQ(here(y)[0].item<float>(), 10);
    }
  }
}

TEST_P(Guarded, MemoryIsCountedAsLibtorchsAllocatorsCountIt) {
  const auto counts = [] { return c10::getDeviceAllocator(guarded::kDevice.type())->getDeviceStats(0); };
  guarded::queues().synchronize_all();
  const auto before = counts();
  c10::getDeviceAllocator(guarded::kDevice.type())->resetPeakStats(0);
  constexpr int64_t kBytes = 1 << 20;
  Tensor x = at::empty({kBytes}, on_device().dtype(at::kByte));
  EXPECT_EQ(counts().allocated_bytes[0].current - before.allocated_bytes[0].current, kBytes);
  x = Tensor();
  const auto after = counts();
  EXPECT_EQ(after.allocated_bytes[0].current, before.allocated_bytes[0].current);
  EXPECT_EQ(after.allocated_bytes[0].peak, before.allocated_bytes[0].current + kBytes);
  EXPECT_GE(after.reserved_bytes[0].current, kBytes);
  x = at::empty({kBytes}, on_device().dtype(at::kByte));
  EXPECT_EQ(counts().reserved_bytes[0].current, after.reserved_bytes[0].current) << "the block is used again";
}

TEST_P(Guarded, TooMuchMemoryIsAnErrorOfLibtorch) {
  guarded::memory().set_limit(guarded::memory().allocated() + 4096);
  EXPECT_THROW(at::empty({4096}, on_device()), c10::OutOfMemoryError);
  guarded::memory().set_limit(SIZE_MAX);
}

}  // namespace
}  // namespace athanor::guarded_test
