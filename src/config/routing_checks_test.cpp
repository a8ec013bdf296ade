// Shows which configurations of routing are refused, and with which words.

#include <gtest/gtest.h>

#include "config/families.h"
#include "config/testing/error_of.h"

namespace athanor::routing_checks_test {
namespace {

constexpr const char* kSparse = R"(
[model]
num_experts = 6
num_experts_per_tok = 2
[data]
path = "data/"
seq_len = 8
[train]
micro_batch_size = 4
[checkpoint]
model_interval = 0
)";

void expect_refused(const std::vector<std::string>& overrides, const std::string& words) {
  const std::string message = error_of(kSparse, overrides);
  EXPECT_NE(message.find(words), std::string::npos) << message;
}

TEST(RoutingChecks, EveryKindOfBalanceIsTaken) {
  for (const char* kind : {"none", "capacity", "forced_uniform"}) {
    EXPECT_EQ(error_of(kSparse, {std::string("moe.balance=") + kind}), "") << kind;
  }
  EXPECT_EQ(error_of(kSparse, {"moe.balance=swipe", "model.num_experts=8"}), "");
}

TEST(RoutingChecks, SwipeIsRefusedWhereExpertsCannotHaveEqualShares) {
  expect_refused({"moe.balance=swipe"},
                 "6 experts cannot have equal shares of the 16 choices of a group (moe.balance_group 1");
  expect_refused({"moe.balance=swipe", "moe.balance_group=2"}, "of the 32 choices of a group (moe.balance_group 2");
  EXPECT_EQ(error_of(kSparse, {"moe.balance=swipe", "data.seq_len=9"}), "");
  // seq_len is known when the data are opened
  EXPECT_EQ(error_of(kSparse, {"moe.balance=swipe", "data.seq_len=0"}), "");
}

TEST(RoutingChecks, ABalanceGroupIsAPartOfAMicrobatchOrSeveral) {
  expect_refused({"moe.balance=capacity", "moe.balance_group=3"},
                 "moe.balance_group (3) must divide train.micro_batch_size (4)");
  EXPECT_EQ(error_of(kSparse, {"moe.balance=capacity", "moe.balance_group=4"}), "");
  // the size of a group of two data ranks
  EXPECT_EQ(error_of(kSparse, {"moe.balance=capacity", "moe.balance_group=8"}), "");
  expect_refused({"moe.balance=capacity", "moe.balance_group=6"}, "or be a multiple of it, which spans data ranks");
  expect_refused({"moe.balance=capacity", "moe.balance_group=8", "moe.aux_scope=transformers"},
                 "pools over a microbatch, and moe.balance_group (8) is more than train.micro_batch_size (4)");
  EXPECT_EQ(error_of(kSparse, {"moe.balance_group=3"}), "");  // without balancing the field has no effect
}

TEST(RoutingChecks, ValuesOutOfRangeAreRefused) {
  for (const char* setting :
       {"moe.bias_update_rate=-1", "moe.bias_update_rate=nan", "moe.router_noise=-0.5", "moe.balance_group=0",
        "moe.capacity_factor=0", "moe.capacity_factor=inf", "moe.capacity_order=random", "moe.combine_weights=both",
        "model.router_score=tanh", "model.routed_scaling_factor=0", "model.num_shared_experts=-1"}) {
    EXPECT_NE(error_of(kSparse, {setting}), "") << setting;
  }
}

TEST(RoutingChecks, WhatTransformersHasNotIsRefusedBeforeAModelIsToBeWritten) {
  for (const char* setting : {"model.num_shared_experts=1", "model.router_score=sigmoid",
                              "model.routed_scaling_factor=2.5", "moe.bias_update_rate=0.001"}) {
    EXPECT_EQ(error_of(kSparse, {setting}), "") << setting;
    const std::string message = error_of(kSparse, {setting, "checkpoint.model_interval=100"});
    const std::string key(setting, std::string_view(setting).find('='));
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find("set checkpoint.model_interval to 0"), std::string::npos) << message;
  }
}

TEST(RoutingChecks, ADenseFamilyHasNoRouter) {
  const std::vector<std::string> dense = {"model.family=llama", "model.num_experts=0", "model.num_experts_per_tok=0"};
  EXPECT_EQ(error_of(kSparse, dense), "");
  auto shared = dense;
  shared.push_back("model.num_shared_experts=1");
  expect_refused(shared, "model.num_shared_experts (1): family llama is dense and has no router");
}

}  // namespace
}  // namespace athanor::routing_checks_test
