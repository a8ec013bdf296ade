#include "metrics/rank_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace athanor::rank_metrics_test {
namespace {

// Four data ranks whose experts are on two ranks.
Layout two_expert_ranks() {
  RunConfig config;
  config.model.num_experts = 4;
  config.model.num_experts_per_tok = 1;
  config.parallelism.expert_parallel_degree = 2;
  return Layout(config, 4);
}

StepMetrics metrics_of(double expert_rank_0, double expert_rank_1) {
  StepMetrics m;
  m.rank_norms = {.ranks = {1, 1, 1, 1}, .experts = {expert_rank_0, expert_rank_1}};
  m.tokens_per_dest_rank = {8192, 4096, 0};
  return m;
}

const std::vector<std::string> kHosts = {"a", "a", "b", "b"};

TEST(RankMetrics, AnImbalanceOfMoreThanAThousandIsNamedWithRanksHostsAndCause) {
  const auto text = describe_imbalance(metrics_of(3000, 1.732), two_expert_ranks(), kHosts);
  ASSERT_TRUE(text);
  for (const char* part :
       {"expert rank 0 (rank 0 on a, rank 2 on b)", "3e+03", "expert rank 1 (rank 1 on a, rank 3 on b)", "1.73",
        "8,192 tokens of a layer went to one rank, and 0 to another", "A router that is all zero"}) {
    EXPECT_NE(text->find(part), std::string::npos) << *text;
  }
}

TEST(RankMetrics, LessThanAThousandIsNot) {
  EXPECT_FALSE(describe_imbalance(metrics_of(949, 1), two_expert_ranks(), kHosts));
  EXPECT_FALSE(describe_imbalance(metrics_of(0, 0), two_expert_ranks(), kHosts));
  EXPECT_TRUE(describe_imbalance(metrics_of(0, 1e-9), two_expert_ranks(), kHosts));
  EXPECT_FALSE(describe_imbalance(metrics_of(NAN, 1), two_expert_ranks(), kHosts));
  EXPECT_FALSE(describe_imbalance({}, two_expert_ranks(), kHosts));
}

}  // namespace
}  // namespace athanor::rank_metrics_test
