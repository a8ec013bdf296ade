#include "layout/width_groups.h"

#include <gtest/gtest.h>

namespace athanor::width_groups_test {
namespace {

RunConfig config_with(const char* scaling) {
  RunConfig config;
  config.model.family = "llama";
  config.model.hidden_size = 256;
  config.optimizer.scaling = scaling;
  config.optimizer.base_width = 64;
  config.optimizer.no_weight_decay = {"*norm.weight", "*o_proj.weight"};
  config.optimizer.weight_decay = 0.1;
  return config;
}

TEST(WidthGroups, EachParameterHasTheRateOfItsRoleAndDecaysAsBefore) {
  const RunConfig config = config_with("mup");
  const auto given = parameter_groups(config.optimizer), scaled = scaled_by_width(given, config);
  for (const ParameterSpec& spec : make_inventory(config.model)) {
    const ParameterGroup &before = group_of(given, spec.name, spec.role), &now = group_of(scaled, spec.name, spec.role);
    const bool follows = spec.role != Role::kEmbedding && !spec.is_norm();
    EXPECT_EQ(now.lr_scale, follows ? 0.25 : 1) << spec.name;
    EXPECT_EQ(now.lr_scale * now.weight_decay, before.lr_scale * before.weight_decay) << spec.name;
  }
}

TEST(WidthGroups, BehindATiedOutputTheFinalNormHasTheRateOfTheOutput) {
  RunConfig config = config_with("mup");
  config.model.tie_word_embeddings = true;
  const auto scaled = scaled_by_width(parameter_groups(config.optimizer), config);
  EXPECT_EQ(group_of(scaled, "model.norm.weight", Role::kNorm).lr_scale, 0.25);
  EXPECT_EQ(group_of(scaled, "model.layers.1.input_layernorm.weight", Role::kNorm).lr_scale, 1);
}

TEST(WidthGroups, NoneLeavesTheGroupsAsTheyAre) {
  const RunConfig config = config_with("none");
  const auto groups = scaled_by_width(parameter_groups(config.optimizer), config);
  EXPECT_EQ(groups.size(), parameter_groups(config.optimizer).size());
  for (const ParameterGroup& group : groups) {
    EXPECT_TRUE(group.among.empty());
    EXPECT_EQ(group.lr_scale, 1);
  }
}

}  // namespace
}  // namespace athanor::width_groups_test
