#include "config/families.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "config/checks.h"
#include "config/toml_reader.h"

namespace athanor::families_test {
namespace {

std::string contradictions(const std::vector<std::string>& overrides) {
  try {
    parse_run_config("", "run.toml", overrides);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

#define EXPECT_REFUSED(words, ...)                                                               \
  EXPECT_NE(contradictions(std::vector<std::string> __VA_ARGS__).find(words), std::string::npos) \
      << contradictions(std::vector<std::string> __VA_ARGS__)

TEST(Families, AnUnknownOneIsRefusedWithTheListOfKnownOnes) {
  EXPECT_REFUSED(
      "one of olmo, olmo2, olmo3, olmoe, llama, qwen2, qwen2_moe, qwen3, qwen3_moe, mistral, mixtral, starcoder2, "
      "gpt2, gpt_neox, phi3, gemma2, gemma3_text, deepseek_v2, deepseek_v3, gpt_oss, m6, got "
      "'mamba'",
      {"model.family=mamba"});
}

TEST(Families, EveryRowsDefaultsAreAModel) {
  for (const auto& family : families()) {
    auto model = family.defaults;
    model.family = family.name;
    EXPECT_TRUE(find_contradictions(model).empty()) << family.name << ": " << find_contradictions(model)[0];
    EXPECT_EQ(find_family(family.name), &family);
  }
}

TEST(Families, WhatAFamilyDoesNotHaveIsRefusedByName) {
  EXPECT_REFUSED(
      "model.num_experts (4): family llama is dense; set it to 0, or model.family to olmoe, qwen2_moe, qwen3_moe, "
      "mixtral, deepseek_v2, deepseek_v3, gpt_oss, m6",
      {"model.family=llama", "model.num_experts=4"});
  EXPECT_REFUSED("model.head_dim (64): in family olmo it is", {"model.family=olmo", "model.head_dim=64"});
  EXPECT_REFUSED("model.clip_qkv (8) is for olmo, olmoe alone", {"model.family=llama", "model.clip_qkv=8"});
  EXPECT_REFUSED(
      "model.moe_intermediate_size (8) is for qwen2_moe, qwen3_moe, deepseek_v2, deepseek_v3 alone",
      {"model.family=olmoe", "model.num_experts=4", "model.num_experts_per_tok=2", "model.moe_intermediate_size=8"});
  EXPECT_REFUSED(
      "model.q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim are for deepseek_v2, "
      "deepseek_v3 alone",
      {"model.family=llama", "model.kv_lora_rank=8"});
  EXPECT_REFUSED("model.n_group and model.topk_group are for deepseek_v2, deepseek_v3 alone",
                 {"model.family=olmoe", "model.n_group=2"});
  EXPECT_REFUSED("model.qk_rope_head_dim (3) and model.qk_nope_head_dim (32) must be even",
                 {"model.family=deepseek_v2", "model.qk_rope_head_dim=3"});
  EXPECT_REFUSED("model.topk_group (1) groups of 2 experts have less than model.num_experts_per_tok (4)",
                 {"model.family=deepseek_v2", "model.n_group=8", "model.topk_group=1"});
  EXPECT_REFUSED("model.rope_scaling.long_factor has 1 numbers; longrope needs 16",
                 {"model.rope_scaling.rope_type=longrope", "model.rope_scaling.long_factor=[2]"});
  EXPECT_REFUSED("model.head_dim (15) must be even", {"model.family=llama", "model.head_dim=15"});
  EXPECT_REFUSED("model.num_attention_heads (7) must divide model.hidden_size (256)",
                 {"model.family=llama", "model.head_dim=32", "model.num_attention_heads=7"});
  EXPECT_EQ(contradictions({"model.family=qwen3", "model.head_dim=32", "model.num_attention_heads=7"}), "");
  EXPECT_REFUSED("the positions of gpt2 are learned", {"model.family=gpt2", "model.rope_theta=5"});
  EXPECT_REFUSED("model.partial_rotary_factor (0.5) is for gpt_neox, phi3 alone",
                 {"model.family=llama", "model.partial_rotary_factor=0.5"});
  EXPECT_REFUSED("of the 32 dims of a head are 3: expected an even number",
                 {"model.family=gpt_neox", "model.head_dim=0", "model.partial_rotary_factor=0.1"});
  EXPECT_REFUSED("model.rope_scaling.rope_type (default): phi3 has longrope alone",
                 {"model.family=phi3", "model.rope_scaling.factor=2"});
  EXPECT_REFUSED("the positions of gpt2 are learned", {"model.family=gpt2", "model.rope_scaling.factor=2"});
  EXPECT_REFUSED("every sparse layer of qwen2_moe has a shared expert; set it to at least 1",
                 {"model.family=qwen2_moe", "model.num_experts=4", "model.num_shared_experts=0"});
  EXPECT_REFUSED("model.shared_expert_intermediate_size (8) has no effect without model.num_shared_experts",
                 {"model.family=olmoe", "model.num_experts=4", "model.num_experts_per_tok=2",
                  "model.shared_expert_intermediate_size=8"});
  EXPECT_REFUSED("model.attn_logit_softcapping (50) is for gemma2 alone",
                 {"model.family=gemma3_text", "model.attn_logit_softcapping=50"});
  EXPECT_REFUSED("model.final_logit_softcapping (30) is for gemma2, gemma3_text alone",
                 {"model.family=llama", "model.final_logit_softcapping=30"});
  EXPECT_REFUSED("model.query_pre_attn_scalar (64) is for gemma2, gemma3_text alone",
                 {"model.family=qwen3", "model.query_pre_attn_scalar=64"});
  EXPECT_REFUSED("model.scale_attn_by_inverse_layer_idx is for gpt2 alone",
                 {"model.family=llama", "model.scale_attn_by_inverse_layer_idx=true"});
  EXPECT_REFUSED("model.swiglu_limit (7) is for gpt_oss alone", {"model.family=mixtral", "model.swiglu_limit=7"});
  EXPECT_REFUSED("model.window_rope_theta (100) is for gemma3_text alone",
                 {"model.family=gemma2", "model.window_rope_theta=100"});
  EXPECT_EQ(contradictions({"model.family=gpt2", "model.hidden_size=15", "model.num_attention_heads=3"}), "")
      << "5 numbers in a head: nothing turns pairs";
}

TEST(Families, LayersWithoutTheWindowFollowTheListOrTheFamilysRule) {
  const auto windows = [](const char* family, std::vector<int64_t> full) {
    ModelConfig m;
    m.family = family;
    m.num_hidden_layers = 5;
    m.sliding_window = 7;
    m.full_attention_layers = std::move(full);
    std::vector<int64_t> all;
    for (int64_t layer = 0; layer < 5; ++layer) all.push_back(m.window_of(layer));
    return all;
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows("olmo3", {}), (Windows{7, 7, 7, 0, 7}));
  EXPECT_EQ(windows("olmo3", {0, 4}), (Windows{0, 7, 7, 7, 0}));
  EXPECT_EQ(windows("gemma2", {}), (Windows{7, 0, 7, 0, 7}));
  EXPECT_EQ(windows("mistral", {}), (Windows{7, 7, 7, 7, 7}));
  EXPECT_REFUSED(
      "model.sliding_window (7) is for olmo3, qwen2, qwen2_moe, qwen3, qwen3_moe, mistral, mixtral, starcoder2, phi3, "
      "gemma2, gemma3_text, gpt_oss alone",
      {"model.family=llama", "model.sliding_window=7"});
  EXPECT_REFUSED(
      "model.full_attention_layers is for olmo3, qwen2, qwen2_moe, qwen3, gemma2, gemma3_text, gpt_oss alone",
      {"model.family=mistral", "model.sliding_window=7", "model.full_attention_layers=[1]"});
  EXPECT_REFUSED("has no effect without model.sliding_window",
                 {"model.family=qwen2", "model.full_attention_layers=[1]"});
  EXPECT_REFUSED("model.full_attention_layers has 9: expected layers from 0 to 3",
                 {"model.family=qwen2", "model.sliding_window=7", "model.full_attention_layers=[1,9]"});
}

TEST(Families, LayersWithoutExpertsFollowStepAndList) {
  ModelConfig m;
  m.family = "qwen3_moe";
  m.num_experts = 4;
  m.num_experts_per_tok = 2;
  m.num_hidden_layers = 6;
  m.decoder_sparse_step = 2;
  m.mlp_only_layers = {3};
  std::vector<bool> sparse;
  for (int64_t layer = 0; layer < 6; ++layer) sparse.push_back(m.is_sparse_layer(layer));
  EXPECT_EQ(sparse, (std::vector<bool>{false, true, false, false, false, true}));
  EXPECT_EQ(m.num_sparse_layers(), std::count(sparse.begin(), sparse.end(), true));
  m.mlp_only_layers = {3, 3, 2};
  EXPECT_EQ(m.num_sparse_layers(), 2);
  EXPECT_TRUE(find_contradictions(m).empty());
  m.mlp_only_layers = {1, 3, 5, 6};
  const auto lines = find_contradictions(m);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], "model.mlp_only_layers has 6: expected layers from 0 to 5");
  EXPECT_NE(lines[1].find("leave none of the 6 layers with experts"), std::string::npos);
}

TEST(RopeScaling, AFieldThatItsTypeDoesNotReadIsRefused) {
  EXPECT_REFUSED("model.rope_scaling.factor has no effect with rope_type default",
                 {"model.rope_scaling.factor=8", "model.num_experts=4", "model.num_experts_per_tok=2"});
  EXPECT_REFUSED("one of default, linear, dynamic, yarn, llama3, longrope, got 'long'",
                 {"model.rope_scaling.rope_type=long"});
  EXPECT_REFUSED("high_freq_factor (1) must be above low_freq_factor (1)",
                 {"model.family=llama", "model.rope_scaling.rope_type=llama3", "model.rope_scaling.factor=8",
                  "model.rope_scaling.high_freq_factor=1"});
}

}  // namespace
}  // namespace athanor::families_test
