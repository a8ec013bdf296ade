// Parameter groups of the configuration: what they take, and what is refused.

#include "layout/group_checks.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "layout/optimizer_state.h"

namespace athanor::group_checks_test {
namespace {

RunConfig two_layers(const std::string& family = "llama") {
  RunConfig c;
  c.model.family = family;
  c.model.num_hidden_layers = 2;
  if (family == "olmoe") c.model.num_experts = 4, c.model.num_experts_per_tok = 2;
  return c;
}

std::string faults_of(const RunConfig& c) { return join(find_group_faults(c), "\n"); }

TEST(WeightDecay, PatternsAreHeldAgainstTheWholeModel) {
  RunConfig c = two_layers();
  EXPECT_EQ(faults_of(c), "");
  c.optimizer.no_weight_decay = {"*norm.weight", "model.embed_tokens.weight", "lm_head.weight", "model.layers.1.*"};
  EXPECT_EQ(faults_of(c), "");
}

TEST(WeightDecay, EachPatternThatMatchesNothingIsNamed) {
  RunConfig c = two_layers();
  c.optimizer.no_weight_decay = {"*bias", "*norm.weight", "model.layers.2.*"};
  const auto lines = find_group_faults(c);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("\"*bias\" matches no parameter of this model"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("\"model.layers.2.*\""), std::string::npos) << lines[1];
}

TEST(ParameterGroups, MuonTakesTheMatricesOfTheLayersAndAdamWTheRest) {
  RunConfig c = two_layers("olmoe");
  c.optimizer.name = "muon";
  const auto plan = plan_optimizers(c.optimizer);
  for (const ParameterSpec& spec : make_inventory(c.model)) {
    const bool matrix_of_layer = spec.shape.size() >= 2 && spec.layer >= 0 && spec.role != Role::kRouter;
    EXPECT_EQ(plan.optimizer_of(spec.name, spec.role).name, matrix_of_layer ? "muon" : "adamw") << spec.name;
    EXPECT_EQ(is_muon_role(spec.role), matrix_of_layer) << spec.name;
  }
}

TEST(ParameterGroups, AGroupChangesWhatItNamesAndKeepsTheRest) {
  RunConfig c = two_layers("olmoe");
  c.optimizer.lr = 0.01;
  c.optimizer.name = "muon";
  c.optimizer.no_weight_decay = {"*norm.weight", "*q_proj.weight"};
  c.optimizer.groups = {{.match = {"norm", "query"}, .name = "", .lr = 0.001, .weight_decay = -1},
                        {.match = {"lm_head.weight"}, .name = "sgd", .lr = 0, .weight_decay = 0.5}};
  EXPECT_EQ(faults_of(c), "");
  const auto plan = plan_optimizers(c.optimizer);
  const auto of = [&](const char* name, Role role) {
    const ParameterGroup group = group_of(plan.groups, name, role);
    return fmt::format("{} {:g} {:g}", group.optimizer, group.lr_scale, group.weight_decay);
  };
  EXPECT_EQ(of("model.norm.weight", Role::kNorm), "adamw 0.1 0");
  EXPECT_EQ(of("model.layers.0.self_attn.q_proj.weight", Role::kQuery), "muon 0.1 0");
  EXPECT_EQ(of("model.layers.0.self_attn.k_proj.weight", Role::kKey), "muon 1 0.1");
  EXPECT_EQ(of("lm_head.weight", Role::kOutput), "sgd 1 0.5");
  EXPECT_EQ(of("model.embed_tokens.weight", Role::kEmbedding), "adamw 1 0.1");
}

TEST(ParameterGroups, WhatMatchesNothingOverlapsOrIsNoMatrixIsRefused) {
  RunConfig c = two_layers();
  c.optimizer.groups = {{.match = {"nrom"}, .name = "sgd"}};
  EXPECT_NE(faults_of(c).find("optimizer.groups[0]: \"nrom\" matches no parameter of this model (did you mean "
                              "\"norm\"?)"),
            std::string::npos)
      << faults_of(c);
  c.optimizer.groups = {{.match = {"router"}, .name = "sgd"}};
  EXPECT_EQ(faults_of(c), "optimizer.groups[0]: this model has no parameter with the role \"router\"");
  c.optimizer.groups = {{.match = {"query"}, .name = "sgd"}, {.match = {"*layers.1.*"}, .name = "lamb"}};
  EXPECT_EQ(faults_of(c),
            "optimizer.groups[0] and optimizer.groups[1] both take model.layers.1.self_attn.q_proj.weight; a parameter "
            "is in one");
  c.optimizer.groups = {{.match = {"model.norm.weight"}, .name = "muon"}};
  EXPECT_NE(faults_of(c).find("muon updates matrices, and model.norm.weight is a vector"), std::string::npos);
  c.model.family = "gpt_oss", c.model.num_experts = 4, c.model.num_experts_per_tok = 1;
  c.optimizer.groups = {{.match = {"*.experts.*"}, .name = "muon"}};
  EXPECT_NE(faults_of(c).find("elements for each expert; give it another optimizer"), std::string::npos)
      << faults_of(c);
  c = two_layers("qwen3");
  c.optimizer.qk_clip = 100;
  EXPECT_NE(faults_of(c).find("qwen3 normalises queries and keys"), std::string::npos) << faults_of(c);
}

}  // namespace
}  // namespace athanor::group_checks_test
