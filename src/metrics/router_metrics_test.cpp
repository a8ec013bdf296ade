#include "metrics/router_metrics.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace athanor::router_metrics_test {
namespace {

constexpr int64_t kTokens = 100, kTopK = 2;

// Two layers of 20 experts: one is even; in the other one expert gets most, 9 get nothing, and some choices are moved
// and dropped.
RouterCounts counts() {
  RouterCounts c;
  c.chosen = at::full({2, 20}, kTokens * kTopK / 20, at::kLong);
  c.taken = c.chosen.clone();
  c.taken[1].zero_();
  c.taken[1].narrow(0, 0, 10).fill_(9);
  c.taken[1][19] = 100;
  c.entropy_sum = at::tensor({250.0, 50.0}, at::kDouble);
  c.moved = at::tensor({0, 20}, at::kLong);
  c.dropped = at::tensor({0, 10}, at::kLong);
  c.flat = at::zeros({2}, at::kLong);
  return c;
}

ModelConfig model() {
  ModelConfig m;
  m.num_hidden_layers = 3;
  m.num_experts = 20;
  m.num_experts_per_tok = kTopK;
  m.mlp_only_layers = {0};  // so that sparse layer 1 is layer 2
  return m;
}

std::string error_of(const RouterCounts& c) {
  try {
    check_first_routing(model(), c, kTokens);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(RouterMetrics, EachLayerHasItsOwn) {
  StepMetrics m;
  describe_routers(counts(), kTokens, m);
  ASSERT_EQ(m.routers.size(), 2u);
  EXPECT_EQ(m.routers[0].load_max_over_mean, 1);
  EXPECT_EQ(m.routers[0].load_p95_over_mean, 1);
  EXPECT_EQ(m.routers[0].dead_experts + m.routers[0].reassigned_share + m.routers[0].dropped_share, 0);
  EXPECT_EQ(m.routers[0].entropy, 2.5);
  const double mean = 190.0 / 20;
  EXPECT_EQ(m.routers[1].load_max_over_mean, 100 / mean);
  EXPECT_EQ(m.routers[1].load_p95_over_mean, 9 / mean);  // 19 of 20 have at most 9
  EXPECT_EQ(m.routers[1].dead_experts, 9);
  EXPECT_EQ(m.routers[1].reassigned_share, 0.1);
  EXPECT_EQ(m.routers[1].dropped_share, 0.05);
  EXPECT_EQ(m.routers[1].entropy, 0.5);
  EXPECT_EQ(m.router_entropy, 1.5);
  const auto json = nlohmann::json::parse(to_json_line(m));
  for (const char* key : {"expert_load_max_over_mean", "expert_load_p95_over_mean", "dead_experts", "reassigned_share",
                          "dropped_share", "layer_router_entropy"}) {
    EXPECT_EQ(json.at(key).size(), 2u) << key;
  }
}

TEST(RouterMetrics, ADenseModelHasNone) {
  StepMetrics m;
  describe_routers({}, kTokens, m);
  EXPECT_TRUE(m.routers.empty());
  EXPECT_TRUE(nlohmann::json::parse(to_json_line(m)).at("dead_experts").empty());
}

TEST(RouterMetrics, CountsOfMicrobatchesAddUp) {
  RouterCounts sum;
  sum += counts();
  sum += counts();
  EXPECT_TRUE(at::equal(sum.taken, counts().taken * 2));
  EXPECT_TRUE(at::equal(sum.entropy_sum, counts().entropy_sum * 2));
  sum += RouterCounts{};
  EXPECT_TRUE(at::equal(sum.moved, counts().moved * 2));
}

TEST(FirstRouting, ARouterWithEqualScoresIsNamedWithWhatWasSeenAndTheRemedy) {
  EXPECT_EQ(error_of(counts()), "");
  auto c = counts();
  c.flat[1] = kTokens - 1;  // one token differs
  EXPECT_EQ(error_of(c), "");
  c.flat[1] = kTokens;
  const auto message = error_of(c);
  EXPECT_NE(message.find("model.layers.2.mlp.gate: the scores of all 20 experts are equal for each of the 100 tokens"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("initializer_range"), std::string::npos);
}

}  // namespace
}  // namespace athanor::router_metrics_test
