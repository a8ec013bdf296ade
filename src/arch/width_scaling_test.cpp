#include "arch/width_scaling.h"

#include <gtest/gtest.h>

#include "config/checks.h"

namespace athanor::width_scaling_test {
namespace {

RunConfig mup(int64_t hidden, int64_t base) {
  RunConfig config;
  config.model.family = "llama";
  config.model.hidden_size = hidden;
  config.optimizer.scaling = "mup";
  config.optimizer.base_width = base;
  return config;
}

TEST(WidthScaling, EveryRoleHasTheClassOfItsDimsThatGrow) {
  const ModelConfig model = mup(256, 64).model;
  EXPECT_EQ(width_class(model, "model.embed_tokens.weight", Role::kEmbedding), WidthClass::kInput);
  EXPECT_EQ(width_class(model, "model.norm.weight", Role::kNorm), WidthClass::kInput);
  for (const Role role : {Role::kQuery, Role::kKey, Role::kValue, Role::kAttentionOut, Role::kGate, Role::kUp,
                          Role::kDown, Role::kExpertGate, Role::kExpertUp, Role::kExpertDown})
    EXPECT_EQ(width_class(model, "matrix", role), WidthClass::kHidden);
  EXPECT_EQ(width_class(model, "lm_head.weight", Role::kOutput), WidthClass::kOutput);
  EXPECT_EQ(width_class(model, "model.layers.0.mlp.gate.weight", Role::kRouter), WidthClass::kOutput);
}

TEST(WidthScaling, BehindATiedOutputLayerOnlyTheFinalNormFollowsTheWidth) {
  ModelConfig model = mup(256, 64).model;
  model.tie_word_embeddings = true;
  EXPECT_EQ(width_class(model, "model.norm.weight", Role::kNorm), WidthClass::kOutput);
  EXPECT_EQ(width_class(model, "model.layers.0.input_layernorm.weight", Role::kNorm), WidthClass::kInput);
  EXPECT_EQ(width_class(model, "model.embed_tokens.weight", Role::kEmbedding), WidthClass::kInput);
}

TEST(WidthScaling, TheFactorsAreThoseOfTensorProgramsV) {
  const double r = width_ratio(mup(256, 64).optimizer, mup(256, 64).model);
  EXPECT_EQ(r, 0.25);
  EXPECT_EQ(initial_factor(WidthClass::kInput, r), 1);
  EXPECT_EQ(initial_factor(WidthClass::kHidden, r), 0.5);
  EXPECT_EQ(initial_factor(WidthClass::kOutput, r), 0.25);
  const auto rates = [&](const char* optimizer, MuonScale scale = MuonScale::kKellerJordan) {
    return std::vector{rate_factor(optimizer, scale, WidthClass::kInput, r),
                       rate_factor(optimizer, scale, WidthClass::kHidden, r),
                       rate_factor(optimizer, scale, WidthClass::kOutput, r)};
  };
  EXPECT_EQ(rates("adamw"), (std::vector{1.0, 0.25, 0.25}));
  EXPECT_EQ(rates("sgd"), (std::vector{4.0, 1.0, 0.25}));
  EXPECT_EQ(rates("muon"), (std::vector{1.0, 1.0, 0.25}));
  EXPECT_EQ(rates("muon", MuonScale::kMoonshot), (std::vector{1.0, 0.5, 0.25}));
}

TEST(WidthScaling, NoneChangesNothing) {
  RunConfig config = mup(256, 64);
  config.optimizer.scaling = "none";
  EXPECT_EQ(width_ratio(config.optimizer, config.model), 1);
  for (const WidthClass width : {WidthClass::kInput, WidthClass::kHidden, WidthClass::kOutput})
    EXPECT_EQ(initial_factor(width, 1), 1);
}

TEST(WidthScaling, WhatHasNoRuleIsRefusedWithTheRemedy) {
  EXPECT_TRUE(find_scaling_contradictions(mup(256, 64)).empty());
  EXPECT_NE(find_scaling_contradictions(mup(256, 0)).at(0).find("optimizer.base_width"), std::string::npos);
  RunConfig config = mup(256, 64);
  config.optimizer.name = "lamb";
  EXPECT_NE(find_scaling_contradictions(config).at(0).find("adamw, sgd or muon"), std::string::npos);
  config = mup(256, 64);
  config.model.family = "olmo";  // its norms have no weights
  EXPECT_TRUE(find_scaling_contradictions(config).empty());
  config.model.tie_word_embeddings = true;
  EXPECT_NE(find_scaling_contradictions(config).at(0).find("tie_word_embeddings"), std::string::npos);
}

}  // namespace
}  // namespace athanor::width_scaling_test
