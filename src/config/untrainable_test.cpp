#include "config/untrainable.h"

#include <gtest/gtest.h>

namespace athanor::untrainable_test {
namespace {

RunConfig sparse(int64_t experts, int64_t chosen, bool norm) {
  RunConfig config;
  config.model.num_experts = experts;
  config.model.num_experts_per_tok = chosen;
  config.model.norm_topk_prob = norm;
  config.moe.router_aux_loss_coef = config.moe.router_z_loss_coef = 0;
  return config;
}

std::string line_of(const RunConfig& config) {
  const auto lines = find_untrainable(config);
  EXPECT_LE(lines.size(), 1);
  return lines.empty() ? "" : lines.front();
}

TEST(Untrainable, ARouterWhoseOnlyWeightIsOneIsNamedWithTheSetting) {
  EXPECT_NE(line_of(sparse(8, 1, true)).find("cannot learn: model.num_experts_per_tok = 1 with model.norm_topk_prob"),
            std::string::npos);
  EXPECT_EQ(line_of(sparse(8, 1, false)), "");
  EXPECT_EQ(line_of(sparse(8, 2, true)), "");
  EXPECT_EQ(line_of(sparse(0, 0, true)), "");
}

TEST(Untrainable, ARouterOfOneExpertIsNamedUnlessItsScoreIsASigmoid) {
  RunConfig config = sparse(1, 1, false);
  EXPECT_NE(line_of(config).find("cannot learn: model.num_experts = 1"), std::string::npos);
  config.model.router_score = "sigmoid";
  EXPECT_EQ(line_of(config), "");
  config.model.norm_topk_prob = true;
  EXPECT_NE(line_of(config).find("cannot learn"), std::string::npos);
}

TEST(Untrainable, ARouterThatOnlyLossesOfItsOwnTeachIsToldSo) {
  RunConfig config = sparse(8, 1, true);
  config.moe.router_aux_loss_coef = 0.01;
  EXPECT_NE(line_of(config).find("nothing from the model's loss"), std::string::npos);
  config = sparse(1, 1, false);
  config.moe.router_aux_loss_coef = 0.01;  // the only probability is 1
  EXPECT_NE(line_of(config).find("cannot learn"), std::string::npos);
  config.moe.router_z_loss_coef = 0.001;
  EXPECT_NE(line_of(config).find("nothing from the model's loss"), std::string::npos);
}

TEST(Untrainable, QueriesAndKeysAreNamedWhereAttentionHasOneTokenToChooseFrom) {
  RunConfig config;
  config.data.seq_len = 2;
  EXPECT_NE(line_of(config).find("self_attn.q_proj"), std::string::npos);
  config.data.seq_len = 3;
  EXPECT_EQ(line_of(config), "");
}

}  // namespace
}  // namespace athanor::untrainable_test
