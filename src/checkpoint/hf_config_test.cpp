#include "checkpoint/hf_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/test_folder.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

/// What transformers 5 writes for OLMoE.
Json olmoe() {
  return Json::parse(R"({"architectures":["OlmoeForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
    "bos_token_id":null,"clip_qkv":null,"dtype":"float32","eos_token_id":50279,"hidden_act":"silu","hidden_size":2048,
    "initializer_range":0.02,"intermediate_size":1024,"max_position_embeddings":4096,"model_type":"olmoe",
    "norm_topk_prob":false,"num_attention_heads":16,"num_experts":64,"num_experts_per_tok":8,"num_hidden_layers":16,
    "num_key_value_heads":16,"output_router_logits":false,"pad_token_id":1,"rms_norm_eps":1e-05,
    "rope_parameters":{"rope_theta":10000.0,"rope_type":"default"},"router_aux_loss_coef":0.01,
    "tie_word_embeddings":false,"transformers_version":"5.0.0","use_cache":true,"vocab_size":50304})");
}

HfConfig parse(const Json& json) { return parse_hf_config(json.dump(), "m/config.json"); }

std::string refusal(Json json, const Json& change) {
  json.update(change);
  return message_of<CheckpointError>([&] { parse(json); });
}

TEST(HfConfig, OlmoeOfTransformers5IsRead) {
  const auto config = parse(olmoe());
  const auto& m = config.model;
  EXPECT_EQ(m.family, "olmoe");
  EXPECT_EQ(m.hidden_size, 2048);
  EXPECT_EQ(m.intermediate_size, 1024);
  EXPECT_EQ(m.num_experts, 64);
  EXPECT_EQ(m.num_experts_per_tok, 8);
  EXPECT_EQ(m.num_hidden_layers, 16);
  EXPECT_EQ(m.kv_heads(), 16);
  EXPECT_EQ(m.vocab_size, 50304);
  EXPECT_EQ(m.rms_norm_eps, 1e-5);
  EXPECT_EQ(m.clip_qkv, 0);
  EXPECT_FALSE(m.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_id, 50279);
  EXPECT_EQ(config.pad_token_id, 1);
  EXPECT_FALSE(config.bos_token_id.has_value());
}

TEST(HfConfig, RopeThetaIsReadWhereverAVersionPutIt) {
  auto version4 = olmoe();
  version4.erase("rope_parameters");
  version4["rope_theta"] = 500000.0;
  version4["rope_scaling"] = nullptr;
  EXPECT_EQ(parse(version4).model.rope_theta, 500000.0);
  auto version5 = olmoe();
  version5["rope_parameters"]["rope_theta"] = 25000;
  EXPECT_EQ(parse(version5).model.rope_theta, 25000.0);
  version5.erase("rope_parameters");
  EXPECT_EQ(parse(version5).model.rope_theta, 10000.0);
}

TEST(HfConfig, WhatIsLeftOutHasTransformersDefaults) {
  const auto olmo = parse(Json{{"model_type", "olmo"}}).model;
  EXPECT_EQ(olmo.hidden_size, 4096);
  EXPECT_EQ(olmo.intermediate_size, 11008);
  EXPECT_EQ(olmo.num_hidden_layers, 32);
  EXPECT_EQ(olmo.num_experts, 0);
  const auto moe = parse(Json{{"model_type", "olmoe"}, {"num_local_experts", 8}}).model;
  EXPECT_EQ(moe.num_experts, 8);
  EXPECT_EQ(moe.num_experts_per_tok, 8);
  EXPECT_EQ(moe.hidden_size, 2048);
}

TEST(HfConfig, WhatIsWrittenIsReadBackEqual) {
  HfConfig config;
  config.model = parse(olmoe()).model;
  config.model.clip_qkv = 8;
  config.model.rope_theta = 12345.5;
  config.model.norm_topk_prob = true;
  config.model.num_key_value_heads = 4;
  config.eos_token_id = 3;
  config.router_aux_loss_coef = 0.002;
  const auto again = parse_hf_config(hf_config_text(config, Dtype::kBF16), "x");
  EXPECT_EQ(again.model, config.model);
  EXPECT_EQ(again.eos_token_id, 3);
  EXPECT_FALSE(again.pad_token_id.has_value());
  EXPECT_EQ(again.router_aux_loss_coef, 0.002);

  const auto dense = parse(Json{{"model_type", "olmo"}, {"tie_word_embeddings", true}});
  EXPECT_EQ(parse_hf_config(hf_config_text(dense, Dtype::kF32), "x").model, dense.model);
  EXPECT_EQ(Json::parse(hf_config_text(dense, Dtype::kF32))["torch_dtype"], "float32");
}

TEST(HfConfig, OptionsThatWeDoNotComputeAreRefusedByName) {
  EXPECT_SAYS(refusal(olmoe(), {{"hidden_act", "gelu"}}), "hidden_act = \"gelu\" is not supported, only \"silu\"");
  EXPECT_SAYS(refusal(olmoe(), {{"attention_bias", true}}), "attention_bias = true");
  EXPECT_SAYS(refusal(olmoe(), {{"attention_dropout", 0.1}}), "attention_dropout = 0.1");
  EXPECT_SAYS(refusal(olmoe(), {{"quantization_config", {{"bits", 4}}}}), "quantization_config");
  EXPECT_SAYS(refusal(olmoe(), {{"model_type", "mamba"}}),
              "model_type \"mamba\" is not supported; expected one of olmo, olmoe, llama, qwen3, qwen3_moe");
  EXPECT_SAYS(refusal(olmoe(), {{"architectures", {"OlmoeModel"}}}), "architectures = [\"OlmoeModel\"]");
}

TEST(HfConfig, EverythingWrongIsNamedAtOnce) {
  const auto message =
      refusal(olmoe(), {{"hidden_size", "wide"}, {"num_hidden_layers", 0}, {"attention_bias", true}, {"clip_qkv", -1}});
  EXPECT_SAYS(message, "m/config.json: ");
  EXPECT_SAYS(message, "hidden_size is \"wide\", expected a whole number from 1");
  EXPECT_SAYS(message, "num_hidden_layers is 0");
  EXPECT_SAYS(message, "clip_qkv is -1");
  EXPECT_SAYS(message, "attention_bias = true");
}

TEST(HfConfig, ImpossibleAndAbsurdSizesAreRefused) {
  EXPECT_SAYS(refusal(olmoe(), {{"num_attention_heads", 7}}), "num_attention_heads (7) must divide");
  EXPECT_SAYS(refusal(olmoe(), {{"num_experts_per_tok", 65}}), "num_experts_per_tok (65)");
  EXPECT_SAYS(refusal(olmoe(), {{"num_hidden_layers", 2000000000}}), "expected at most");
  EXPECT_SAYS(refusal(olmoe(), {{"num_experts", 2000000000}}), "expected at most");
  EXPECT_SAYS(refusal(olmoe(), {{"vocab_size", 1e300}}), "vocab_size is 1e+300");
  EXPECT_SAYS(refusal(olmoe(), {{"vocab_size", UINT64_MAX}}), "vocab_size is 18446744073709551615");
  EXPECT_SAYS(refusal(olmoe(), {{"hidden_size", int64_t{1} << 31}, {"vocab_size", int64_t{1} << 31}}),
              "more parameters than can be counted");
  EXPECT_SAYS(message_of<CheckpointError>([] { parse_hf_config("[]", "x"); }), "expected an object");
  EXPECT_SAYS(message_of<CheckpointError>([] { parse_hf_config("{\"model_type\":", "x"); }), "not valid JSON");
}

}  // namespace
}  // namespace athanor
