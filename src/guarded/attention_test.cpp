// What the kernels of attention leave undefined, as CUDA does. That they are right where they are used is shown in
// ops/device/device_test.cpp.

#include <ATen/Context.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <gtest/gtest.h>

#include <cstring>

#include "guarded/device.h"

namespace athanor::guarded_attention_test {
namespace {

using at::Tensor;

// Two documents and an empty one, and a token after them.
constexpr int64_t kTokens = 8;
Tensor offsets() { return guarded::to_device(at::tensor({0, 5, 7, 7}, at::kInt)); }

Tensor there(at::IntArrayRef shape, at::ScalarType dtype) {
  guarded::install();
  return guarded::to_device(at::randn(shape).to(dtype));
}

bool is_poison(const Tensor& x) {
  const Tensor bytes = guarded::to_host(x).contiguous().reshape({-1}).view(at::kByte);
  return bytes.eq(guarded::kPoison).all().item<bool>();
}

TEST(GuardedAttention, FlashWritesNothingForTokensOfNoDocument) {
  const Tensor q = there({kTokens, 4, 8}, at::kBFloat16), k = there({kTokens, 2, 8}, at::kBFloat16), table = offsets();
  const auto forward = at::_flash_attention_forward(q, k, k, table, table, kTokens, kTokens, 0.0, true, false);
  const Tensor &out = std::get<0>(forward), &logsumexp = std::get<1>(forward);
  EXPECT_FALSE(is_poison(out.narrow(0, 6, 1)));
  EXPECT_TRUE(is_poison(out.narrow(0, 7, 1)));
  EXPECT_FALSE(is_poison(logsumexp.narrow(1, 6, 1)));
  EXPECT_TRUE(is_poison(logsumexp.narrow(1, 7, 1)));
  const auto [dq, dk, dv] = at::_flash_attention_backward(q, q, k, k, out, logsumexp, table, table, kTokens, kTokens,
                                                          0.0, true, std::get<2>(forward), std::get<3>(forward));
  for (const Tensor& each : {dq, dk, dv}) {
    EXPECT_FALSE(is_poison(each.narrow(0, 6, 1)));
    EXPECT_TRUE(is_poison(each.narrow(0, 7, 1)));
  }
}

TEST(GuardedAttention, EfficientLeavesTheRoomOfShortDocumentsUnwritten) {
  const Tensor x = there({1, kTokens, 2, 4}, at::kFloat), table = offsets();
  const auto forward = at::_efficient_attention_forward(x, x, x, {}, table, table, kTokens, kTokens, 0.0, 1, true);
  const Tensor &out = std::get<0>(forward), &logsumexp = std::get<1>(forward);
  EXPECT_EQ(logsumexp.sizes(), at::IntArrayRef({3, 2, 32}));
  EXPECT_TRUE(is_poison(out.narrow(1, 7, 1)));
  EXPECT_FALSE(is_poison(logsumexp[0].narrow(1, 4, 1)));
  EXPECT_TRUE(is_poison(logsumexp[0].narrow(1, 5, 27)));
  EXPECT_TRUE(is_poison(logsumexp[2]));
}

TEST(GuardedAttention, FlashBackwardHasAFixedOrderOnlyIfTheProcessAsksForIt) {
  const Tensor x = there({1, kTokens, 2, 8}, at::kBFloat16);
  const auto forward = at::_flash_attention_forward(x, x, x, {}, {}, kTokens, kTokens, 0.0, true, false);
  const auto dq = [&] {
    return guarded::to_host(std::get<0>(
        at::_flash_attention_backward(x, x, x, x, std::get<0>(forward), std::get<1>(forward), {}, {}, kTokens, kTokens,
                                      0.0, true, std::get<2>(forward), std::get<3>(forward))));
  };
  EXPECT_FALSE(dq().equal(dq()));
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  EXPECT_TRUE(dq().equal(dq()));
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST(GuardedAttention, ADocumentThatIsLongerThanStatedIsAnError) {
  const Tensor x = there({kTokens, 2, 8}, at::kBFloat16), table = offsets();
  guarded::queues().set_order({guarded::Order::Kind::kLatest});
  at::_flash_attention_forward(x, x, x, table, table, 4, 4, 0.0, true, false);
  EXPECT_THROW(guarded::queues().synchronize_all(), std::exception);
  guarded::queues().set_order({});
}

TEST(GuardedAttention, HeadsThatCudaRefusesAreRefused) {
  const Tensor odd = there({1, kTokens, 2, 12}, at::kBFloat16), wide = there({1, kTokens, 2, 12}, at::kFloat);
  const Tensor narrow = there({1, kTokens, 1, 12}, at::kFloat);
  EXPECT_THROW(at::_flash_attention_forward(odd, odd, odd, {}, {}, 8, 8, 0.0, true, false), c10::Error);
  EXPECT_THROW(at::_flash_attention_forward(wide, wide, wide, {}, {}, 8, 8, 0.0, true, false), c10::Error);
  EXPECT_THROW(at::_efficient_attention_forward(wide, narrow, narrow, {}, {}, {}, 8, 8, 0.0, 1, true), c10::Error);
  EXPECT_NO_THROW(at::_efficient_attention_forward(wide, wide, wide, {}, {}, {}, 8, 8, 0.0, 1, true));
}

}  // namespace
}  // namespace athanor::guarded_attention_test
