#include "ops/transfer.h"

#include "guarded/device.h"
#include "ops/testing/op_testing.h"

namespace athanor::ops::transfer_test {
namespace {

using guarded::Order;
using test::expect_same_bits;
using test::normal;

class Transfer : public ::testing::TestWithParam<Order> {
 protected:
  void SetUp() override { guarded::queues().set_order(GetParam()); }
  void TearDown() override { guarded::queues().set_order({}); }
};
INSTANTIATE_TEST_SUITE_P(, Transfer,
                         ::testing::Values(Order{}, Order{Order::Kind::kLatest}, Order{Order::Kind::kDrawn, 5}));

TEST_P(Transfer, WhatIsSentComesBackAlthoughTheHostChangesItsCopyAtOnce) {
  const Tensor x = normal({1000, 7}, 1), original = x.clone();
  const Tensor sent = send(x, guarded::device_of_tests());
  x.fill_(3);
  Fetch back(sent);
  sent.fill_(5);  // later on the stream
  expect_same_bits(back.get(), original, "sent");
}

TEST_P(Transfer, BytesPassThroughBlocksInOrder) {
  const int64_t elements = (int64_t{40} << 20) / 4 + 3;  // two blocks and a half
  const Tensor x = at::arange(elements, at::kInt),
               there = at::empty({elements}, x.options().device(guarded::device_of_tests()));
  Tensor back = at::zeros_like(x);
  send_bytes(there, x.data_ptr());
  fetch_bytes(there, back.data_ptr());
  expect_same_bits(back, x, "bytes");
}

TEST_P(Transfer, EachCopyAndEachWaitIsCounted) {
  const auto counted = [](auto f) {
    const TransferCounts before = transfer_counts();
    const guarded::CopyCounts copies = guarded::copy_counts();
    const int64_t waits = guarded::queues().counts().waits;
    f();
    const TransferCounts counts = transfer_counts() - before;
    EXPECT_EQ(guarded::copy_counts().to_device - copies.to_device, counts.copies_to_device);
    EXPECT_EQ(guarded::copy_counts().to_host - copies.to_host, counts.copies_to_host);
    EXPECT_EQ(guarded::queues().counts().waits - waits, counts.waits);
    return counts;
  };
  Tensor x;
  EXPECT_EQ(counted([&] { x = send(at::ones({3}), guarded::device_of_tests()); }).waits, 0);
  const TransferCounts fetching = counted([&] { fetch_item<float>(x.sum()); });
  EXPECT_EQ(fetching.copies_to_host, 1);
  EXPECT_EQ(fetching.waits, 1);
  EXPECT_EQ(counted([&] { wait_for(guarded::device_of_tests()); }).waits, 1);
}

TEST(TransferOnTheCpu, NothingIsCopiedOrWaitedFor) {
  const TransferCounts before = transfer_counts();
  const Tensor x = normal({5}, 1);
  EXPECT_EQ(send(x, at::kCPU).data_ptr(), x.data_ptr());
  EXPECT_EQ(fetch(x).data_ptr(), x.data_ptr());
  wait_for(at::kCPU);
  const TransferCounts counts = transfer_counts() - before;
  EXPECT_EQ(counts.copies_to_device + counts.copies_to_host + counts.waits, 0);
}

}  // namespace
}  // namespace athanor::ops::transfer_test
