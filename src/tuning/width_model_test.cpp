#include "tuning/width_model.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace athanor::width_model_test {
namespace {

RunConfig of_width_256() {
  RunConfig config;
  config.model.family = "qwen3_moe";
  config.model.hidden_size = 256;
  config.model.num_attention_heads = 8;
  config.model.num_key_value_heads = 4;
  config.model.attention_head_dim = 48;
  config.model.intermediate_size = 768;
  config.model.moe_intermediate_size = 96;
  config.model.num_experts = 8;
  config.model.num_experts_per_tok = 2;
  return config;
}

TEST(WidthModel, HeadsAndFeedForwardLayersGrowInProportionAndEachHeadStaysAsWide) {
  const ModelConfig model = with_width(of_width_256(), 64, 1).model;
  EXPECT_EQ(model.hidden_size, 64);
  EXPECT_EQ(model.num_attention_heads, 2);
  EXPECT_EQ(model.num_key_value_heads, 1);
  EXPECT_EQ(model.head_dim(), 48);
  EXPECT_EQ(model.intermediate_size, 192);
  EXPECT_EQ(model.moe_intermediate_size, 24);
  EXPECT_EQ(model.num_experts, 8);
  EXPECT_EQ(with_width(of_width_256(), 256, 1).model, of_width_256().model);
}

std::string refusal_of(const RunConfig& config, int64_t width, int ranks) {
  try {
    with_width(config, width, ranks);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(WidthModel, AWidthWithoutWholeHeadsIsRefusedAndThePossibleOnesAreNamed) {
  EXPECT_NE(refusal_of(of_width_256(), 96, 1).find("multiples of 64"), std::string::npos);
}

TEST(WidthModel, AWidthWhoseHeadsDoNotFitTheLayoutIsRefused) {
  RunConfig config = of_width_256();
  config.parallelism.tensor_parallel_degree = 4;
  EXPECT_EQ(refusal_of(config, 256, 4), "");
  EXPECT_NE(refusal_of(config, 64, 4).find("tensor_parallel_degree (4)"), std::string::npos);
}

}  // namespace
}  // namespace athanor::width_model_test
