#include "arch/width_scaling.h"

#include <gtest/gtest.h>

#include <map>

#include "arch/inventory.h"
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

// The class of each parameter, by its name without the layer.
std::map<std::string, WidthClass> classes_of(const ModelConfig& model) {
  std::map<std::string, WidthClass> classes;
  for (const ParameterSpec& spec : make_inventory(model)) classes[spec.name] = spec.width;
  return classes;
}

TEST(WidthScaling, EveryParameterHasTheClassOfItsDimsThatGrow) {
  ModelConfig model = mup(256, 64).model;
  model.family = "olmoe", model.num_experts = 4, model.num_experts_per_tok = 2, model.num_shared_experts = 1;
  const auto input = [](Role role) { return role == Role::kEmbedding || role == Role::kNorm || role == Role::kQkNorm; };
  const auto output = [](Role role) { return role == Role::kRouter || role == Role::kOutput; };
  for (const ParameterSpec& spec : make_inventory(model))
    EXPECT_EQ(spec.width, input(spec.role)    ? WidthClass::kInput
                          : output(spec.role) ? WidthClass::kOutput
                                              : WidthClass::kHidden)
        << spec.name;
}

TEST(WidthScaling, BehindATiedOutputLayerOnlyTheFinalNormFollowsTheWidth) {
  ModelConfig model = mup(256, 64).model;
  model.tie_word_embeddings = true;
  const auto classes = classes_of(model);
  EXPECT_EQ(classes.at("model.norm.weight"), WidthClass::kOutput);
  EXPECT_EQ(classes.at("model.layers.0.input_layernorm.weight"), WidthClass::kInput);
  EXPECT_EQ(classes.at("model.embed_tokens.weight"), WidthClass::kInput);
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
  EXPECT_NE(find_scaling_contradictions(config).at(0).find("adamw, sgd, muon"), std::string::npos);
  config = mup(256, 64);
  config.model.family = "olmo";  // its norms have no weights
  EXPECT_TRUE(find_scaling_contradictions(config).empty());
  config.model.tie_word_embeddings = true;
  EXPECT_NE(find_scaling_contradictions(config).at(0).find("tie_word_embeddings"), std::string::npos);
}

}  // namespace
}  // namespace athanor::width_scaling_test
