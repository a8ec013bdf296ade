#include "checkpoint/hf_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/testing/folder_test.h"

namespace athanor::hf_config_test {
namespace {

using Json = nlohmann::json;

/// The config.json that transformers 5 writes for OLMoE.
Json olmoe() {
  return Json::parse(R"({"architectures":["OlmoeForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
    "bos_token_id":null,"clip_qkv":null,"dtype":"float32","eos_token_id":50279,"hidden_act":"silu","hidden_size":2048,
    "initializer_range":0.02,"intermediate_size":1024,"max_position_embeddings":4096,"model_type":"olmoe",
    "norm_topk_prob":false,"num_attention_heads":16,"num_experts":64,"num_experts_per_tok":8,"num_hidden_layers":16,
    "num_key_value_heads":16,"output_router_logits":false,"pad_token_id":1,"rms_norm_eps":1e-05,
    "rope_parameters":{"rope_theta":10000.0,"rope_type":"default"},"router_aux_loss_coef":0.01,
    "tie_word_embeddings":false,"transformers_version":"5.0.0","use_cache":true,"vocab_size":50304})");
}

/// The config.json of Qwen/Qwen3-30B-A3B, with the older names of version 4.
Json qwen3_moe() {
  return Json::parse(R"({"architectures":["Qwen3MoeForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
    "bos_token_id":151643,"decoder_sparse_step":1,"eos_token_id":151645,"head_dim":128,"hidden_act":"silu",
    "hidden_size":2048,"initializer_range":0.02,"intermediate_size":6144,"max_position_embeddings":40960,
    "max_window_layers":48,"mlp_only_layers":[],"model_type":"qwen3_moe","moe_intermediate_size":768,
    "norm_topk_prob":true,"num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,"num_hidden_layers":48,
    "num_key_value_heads":4,"output_router_logits":false,"rms_norm_eps":1e-06,"rope_scaling":null,
    "rope_theta":1000000.0,"router_aux_loss_coef":0.001,"sliding_window":null,"tie_word_embeddings":false,
    "torch_dtype":"bfloat16","transformers_version":"4.51.0","use_cache":true,"use_sliding_window":false,
    "vocab_size":151936})");
}

/// The config.json of openai-community/gpt2.
Json gpt2() {
  return Json::parse(R"({"activation_function":"gelu_new","architectures":["GPT2LMHeadModel"],"attn_pdrop":0.1,
    "bos_token_id":50256,"embd_pdrop":0.1,"eos_token_id":50256,"initializer_range":0.02,"layer_norm_epsilon":1e-05,
    "model_type":"gpt2","n_ctx":1024,"n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,"resid_pdrop":0.1,
    "summary_activation":null,"summary_first_dropout":0.1,"summary_proj_to_labels":true,"summary_type":"cls_index",
    "summary_use_proj":true,"task_specific_params":{"text-generation":{"do_sample":true,"max_length":50}},
    "vocab_size":50257})");
}

/// The config.json of meta-llama/Llama-3.2-1B.
Json llama() {
  return Json::parse(R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
    "bos_token_id":128000,"eos_token_id":128001,"head_dim":64,"hidden_act":"silu","hidden_size":2048,
    "initializer_range":0.02,"intermediate_size":8192,"max_position_embeddings":131072,"mlp_bias":false,
    "model_type":"llama","num_attention_heads":32,"num_hidden_layers":16,"num_key_value_heads":8,"pretraining_tp":1,
    "rms_norm_eps":1e-05,"rope_scaling":{"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,
    "original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,"tie_word_embeddings":true,
    "torch_dtype":"bfloat16","transformers_version":"4.45.0.dev0","use_cache":true,"vocab_size":128256})");
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
  EXPECT_EQ(config.eos_token_id(), 50279);
  EXPECT_EQ(config.pad_token_id, 1);
  EXPECT_FALSE(config.bos_token_id.has_value());
}

TEST(HfConfig, SeveralEndsOfTextAreAllReadAndEachIsAToken) {
  auto json = olmoe();
  json["eos_token_id"] = {50279, 7};
  EXPECT_EQ(parse(json).eos_token_ids, (std::vector<int64_t>{50279, 7}));
  EXPECT_EQ(parse_hf_config(hf_config_text(parse(json), Dtype::kBF16), "x").eos_token_ids,
            (std::vector<int64_t>{50279, 7}));
  EXPECT_SAYS(refusal(olmoe(), {{"eos_token_id", {50279, "x"}}}), "eos_token_id is [50279,\"x\"], expected a token id");
  EXPECT_SAYS(refusal(olmoe(), {{"bos_token_id", {1, 2}}}), "bos_token_id is [1,2], expected one token id");
}

TEST(HfConfig, WhatChangesAResultIsRefusedOrNamedAndWhatDoesNotIsPassedOver) {
  EXPECT_SAYS(refusal(olmoe(), {{"is_causal", false}}), "is_causal = false is not supported");
  EXPECT_SAYS(refusal(olmoe(), {{"is_encoder_decoder", true}}), "is_encoder_decoder = true");
  for (const auto& json : {olmoe(), qwen3_moe(), llama(), gpt2()}) EXPECT_TRUE(parse(json).unknown_members.empty());
  auto json = llama();
  json["logit_scale"] = 0.5;
  json["gone"] = nullptr;
  json["use_bias"] = true;  // which llama has not
  EXPECT_EQ(parse(json).unknown_members, (std::vector<std::string>{"logit_scale = 0.5", "use_bias = true"}));
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

TEST(HfConfig, Qwen3MoeIsRead) {
  const auto config = parse(qwen3_moe());
  const auto& m = config.model;
  EXPECT_EQ(m.family, "qwen3_moe");
  EXPECT_EQ(m.head_dim(), 128);
  EXPECT_EQ(m.kv_heads(), 4);
  EXPECT_EQ(m.expert_intermediate_size(), 768);
  EXPECT_EQ(m.intermediate_size, 6144);
  EXPECT_EQ(m.num_sparse_layers(), 48);
  EXPECT_TRUE(m.norm_topk_prob);
  EXPECT_EQ(m.rope_theta, 1e6);
  EXPECT_EQ(m.rms_norm_eps, 1e-6);
  EXPECT_EQ(m.rope_scaling, RopeScaling{});
  EXPECT_EQ(config.router_aux_loss_coef, 0.001);
  EXPECT_EQ(parse({{"model_type", "qwen3_moe"}, {"sliding_window", 4096}}).model.num_hidden_layers, 24);
}

TEST(HfConfig, Gpt2HasNamesOfItsOwn) {
  const auto config = parse(gpt2());
  const auto& m = config.model;
  EXPECT_EQ(m.family, "gpt2");
  EXPECT_EQ(m.hidden_size, 768);
  EXPECT_EQ(m.num_hidden_layers, 12);
  EXPECT_EQ(m.num_attention_heads, 12);
  EXPECT_EQ(m.kv_heads(), 12);
  EXPECT_EQ(m.intermediate_size, 3072) << "four times the width without n_inner";
  EXPECT_EQ(m.max_position_embeddings, 1024);
  EXPECT_TRUE(m.tie_word_embeddings) << "what transformers assumes for this family";
  EXPECT_EQ(config.eos_token_ids, std::vector<int64_t>{50256});
  const auto written = Json::parse(hf_config_text(config, Dtype::kF32));
  EXPECT_EQ(written["n_embd"], 768);
  EXPECT_EQ(written["activation_function"], "gelu_new");
  for (const char* of_llama : {"hidden_size", "num_key_value_heads", "rope_theta", "rms_norm_eps", "hidden_act"})
    EXPECT_FALSE(written.contains(of_llama)) << of_llama;
  EXPECT_SAYS(refusal(gpt2(), {{"activation_function", "gelu"}}),
              "activation_function = \"gelu\" is not supported, only \"gelu_new\" or \"gelu_pytorch_tanh\"");
  EXPECT_FALSE(written.contains("reorder_and_upcast_attn"));
  auto upcasts = gpt2();
  upcasts["reorder_and_upcast_attn"] = true;
  EXPECT_EQ(Json::parse(hf_config_text(parse(upcasts), Dtype::kF32))["reorder_and_upcast_attn"], true);
  EXPECT_SAYS(refusal(gpt2(), {{"n_head", "12"}}), "n_head");
}

TEST(HfConfig, Gpt2IsReadUnderTheNamesThatTransformersTakesForItsOwn) {
  auto json = gpt2();
  json.erase("n_head");
  json["num_attention_heads"] = 6;
  EXPECT_EQ(parse(json).model.num_attention_heads, 6);
  json["n_head"] = 12;
  EXPECT_SAYS(refusal(json, {{"n_layer", 12}}),
              "n_head is 12 and num_attention_heads is 6, which are two names of one member");
  json = gpt2();
  for (const char* of_llama : {"rms_norm_eps", "intermediate_size", "rope_theta", "num_key_value_heads"})
    json[of_llama] = 2;
  const auto config = parse(json);
  EXPECT_EQ(config.unknown_members.size(), 4u) << "transformers does not read them for this family";
  EXPECT_EQ(config.model.kv_heads(), 12);
  EXPECT_EQ(config.model.intermediate_size, 3072);
}

TEST(HfConfig, LlamaWithItsRopeIsRead) {
  const auto m = parse(llama()).model;
  EXPECT_EQ(m.family, "llama");
  EXPECT_EQ(m.rope_scaling.rope_type, "llama3");
  EXPECT_EQ(m.rope_scaling.factor, 32);
  EXPECT_EQ(m.rope_scaling.original_max_position_embeddings, 8192);
  EXPECT_EQ(m.rope_scaling.high_freq_factor, 4);
  EXPECT_TRUE(m.tie_word_embeddings);
  auto version5 = llama();
  version5["rope_parameters"] = version5["rope_scaling"];
  version5["rope_parameters"]["rope_theta"] = 500000.0;
  version5.erase("rope_scaling");
  version5.erase("rope_theta");
  EXPECT_EQ(parse(version5).model, m);
}

TEST(HfConfig, ScalingsThatAreNotComputedOrIncompleteAreRefusedByName) {
  const auto with = [](Json rope) { return refusal(llama(), {{"rope_scaling", std::move(rope)}}); };
  EXPECT_SAYS(with({{"rope_type", "proportional"}, {"factor", 2.0}}),
              "rope_type \"proportional\" is not supported, only");
  EXPECT_SAYS(with({{"rope_type", "longrope"}, {"factor", 2.0}}), "short_factor is null, expected a list of numbers");
  EXPECT_SAYS(with({{"type", "linear"}}), "factor is null, expected a number above 0");
  EXPECT_SAYS(with({{"type", "linear"}, {"factor", -2}}), "factor is -2");
  EXPECT_SAYS(with({{"rope_type", "llama3"}, {"factor", 8.0}}), "low_freq_factor is null");
  EXPECT_SAYS(with({{"rope_type", "default"}, {"mrope_section", {16, 24}}}), "mrope_section = [16,24]");
  EXPECT_SAYS(with({{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}), "partial_rotary_factor = 0.5");
  EXPECT_SAYS(with({{"rope_type", 3}}), "rope_type is 3, expected a text");
  EXPECT_SAYS(with({{"rope_type", "yarn"}, {"factor", 2.0}, {"attention_factor", 0}}), "attention_factor is 0");
  EXPECT_SAYS(with("linear"), "expected an object");
  EXPECT_SAYS(with({{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}),
              "high_freq_factor (4) must be above low_freq_factor (4)");
}

TEST(HfConfig, YarnTakesItsFactorFromTheLengthsWhereItIsNull) {
  const auto m = parse({{"model_type", "qwen3"},
                        {"max_position_embeddings", 131072},
                        {"rope_scaling",
                         {{"rope_type", "yarn"}, {"factor", nullptr}, {"original_max_position_embeddings", 32768}}}})
                     .model;
  EXPECT_EQ(m.rope_scaling.factor, 4);
  EXPECT_EQ(m.head_dim(), 128);  // the default of transformers for this family
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
  config.eos_token_ids = {3};
  config.router_aux_loss_coef = 0.002;
  const auto again = parse_hf_config(hf_config_text(config, Dtype::kBF16), "x");
  EXPECT_EQ(again.model, config.model);
  EXPECT_EQ(again.eos_token_id(), 3);
  EXPECT_FALSE(again.pad_token_id.has_value());
  EXPECT_EQ(again.router_aux_loss_coef, 0.002);

  for (auto& json : {qwen3_moe(), llama(), gpt2(), Json{{"model_type", "llama"}}, Json{{"model_type", "qwen3"}}}) {
    const auto first = parse(json);
    const auto second = parse_hf_config(hf_config_text(first, Dtype::kBF16), "x");
    EXPECT_EQ(second.model, first.model) << json["model_type"];
    EXPECT_EQ(second.bos_token_id, first.bos_token_id);
  }
  auto mixed = parse(qwen3_moe());
  mixed.model.decoder_sparse_step = 2;
  mixed.model.mlp_only_layers = {1, 5};
  mixed.model.rope_scaling = {.rope_type = "yarn", .factor = 4, .original_max_position_embeddings = 64};
  mixed.model.rope_scaling.beta_slow = 2;
  mixed.model.rope_scaling.truncate = false;
  EXPECT_EQ(parse_hf_config(hf_config_text(mixed, Dtype::kF32), "x").model, mixed.model);

  const auto dense = parse(Json{{"model_type", "olmo"}, {"tie_word_embeddings", true}});
  EXPECT_EQ(parse_hf_config(hf_config_text(dense, Dtype::kF32), "x").model, dense.model);
  EXPECT_EQ(Json::parse(hf_config_text(dense, Dtype::kF32))["torch_dtype"], "float32");
}

// A small config.json of a family with these members.
Json small(const char* family, const Json& members) {
  Json json{{"model_type", family},          {"hidden_size", 32},        {"intermediate_size", 24},
            {"num_attention_heads", 4},      {"num_key_value_heads", 4}, {"num_hidden_layers", 4},
            {"max_position_embeddings", 64}, {"vocab_size", 50}};
  json.update(members);
  return json;
}

TEST(HfConfig, AWindowIsReadAsTransformersReadsIt) {
  using Layers = std::vector<int64_t>;
  const auto model = [](const char* family, const Json& members) { return parse(small(family, members)).model; };
  EXPECT_EQ(model("mistral", Json::object()).sliding_window, 4096);
  EXPECT_EQ(model("mistral", {{"sliding_window", nullptr}}).sliding_window, 0);
  EXPECT_EQ(model("mixtral", Json::object()).sliding_window, 0);
  EXPECT_EQ(model("starcoder2", {{"sliding_window", 9}}).sliding_window, 9);
  EXPECT_EQ(model("qwen2", {{"sliding_window", 9}}).sliding_window, 0) << "use_sliding_window is false";
  EXPECT_EQ(model("qwen2", {{"sliding_window", 9}, {"use_sliding_window", true}}).sliding_window, 0)
      << "the first 28 layers have none";
  const Json switched{{"sliding_window", 9}, {"use_sliding_window", true}, {"max_window_layers", 1}};
  EXPECT_EQ(model("qwen2", switched).sliding_window, 9);
  EXPECT_EQ(model("qwen2", switched).full_attention_layers, Layers{0});
  EXPECT_EQ(model("qwen3_moe", {{"use_sliding_window", true}}).sliding_window, 4096) << "all layers";
  EXPECT_EQ(model("olmo3", Json::object()).window_of(2), 4096);
  EXPECT_EQ(model("olmo3", Json::object()).window_of(3), 0) << "every fourth layer has none";
  const std::string far = "sliding_attention", all = "full_attention";
  const auto listed = model("olmo3", {{"sliding_window", 9}, {"layer_types", {all, far, far, all}}});
  EXPECT_EQ(listed.full_attention_layers, (Layers{0, 3}));
  EXPECT_EQ(model("olmo3", {{"layer_types", {all, all, all, all}}}).sliding_window, 0);
  const auto refused = [](const char* family, const Json& members) {
    return refusal(small(family, members), Json::object());
  };
  EXPECT_SAYS(refused("qwen3", {{"layer_types", {all, far}}}), "expected \"full_attention\" or \"sliding_attention\"");
  EXPECT_SAYS(refused("qwen3", {{"layer_types", {all, all, all, far}}}), "there is no sliding_window");
  EXPECT_SAYS(refused("mistral", {{"layer_types", {all, all, all, far}}}), "all layers of this family have the window");
  EXPECT_SAYS(refused("olmo3", {{"layer_types", {far, far, far, far}}}), "must have full attention");
  EXPECT_EQ(model("mistral", {{"use_sliding_window", false}}).sliding_window, 4096) << "the class does not read it";
  EXPECT_SAYS(refused("llama", {{"use_sliding_window", true}}), "use_sliding_window = true");
  EXPECT_SAYS(refused("olmo3", {{"sliding_window", nullptr}}), "sliding_window = null is not supported");
  EXPECT_EQ(Json::parse(hf_config_text(parse(small("olmo3", {{"layer_types", {all, all, all, all}}})),
                                       Dtype::kF32))["sliding_window"],
            4096)
      << "the class needs one";
  EXPECT_EQ(model("qwen2", {{"num_attention_heads", 8}, {"num_key_value_heads", nullptr}}).kv_heads(), 8);
  EXPECT_SAYS(refused("mistral", {{"sliding_window", 0}}), "sliding_window is 0");
  // No list of these layers is made first.
  EXPECT_SAYS(refused("qwen2", {{"sliding_window", 9},
                                {"use_sliding_window", true},
                                {"num_hidden_layers", 2000000000},
                                {"max_window_layers", 1999999999}}),
              "num_hidden_layers");
}

TEST(HfConfig, ScaledRotationIsThatOfLayersWithoutAWindow) {
  const Json yarn{{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 8}};
  Json full = yarn;
  full["rope_theta"] = 2000.0;
  const Json plain{{"rope_type", "default"}, {"rope_theta", 2000.0}};
  const auto both = small("olmo3", {{"rope_parameters", {{"full_attention", full}, {"sliding_attention", plain}}}});
  const ModelConfig m = parse(both).model;
  EXPECT_EQ(m.rope_theta, 2000);
  EXPECT_EQ(m.rope_scaling.rope_type, "yarn");
  EXPECT_EQ(parse_hf_config(hf_config_text(parse(both), Dtype::kF32), "x").model.rope_scaling, m.rope_scaling);
  const auto flat = parse(small("olmo3", {{"rope_theta", 500000.0}, {"rope_scaling", yarn}})).model;
  EXPECT_EQ(flat.rope_scaling.factor, 8);
  EXPECT_EQ(flat.rope_theta, 500000);
  EXPECT_SAYS(refusal(small("olmo3", {{"rope_theta", 2000.0}}), Json::object()),
              "rope_theta is 2000.0 in layers without a window and 500000.0 in those with one");
  const Json bare{{"rope_type", "default"}};
  const Json both_bare{{"full_attention", bare}, {"sliding_attention", bare}};
  EXPECT_SAYS(refusal(small("olmo3", {{"rope_theta", 2000.0}, {"rope_parameters", both_bare}}), Json::object()),
              "rope_theta is 2000.0 in layers without a window and 500000.0 in those with one");
  EXPECT_SAYS(refusal(both, {{"rope_parameters", {{"full_attention", full}, {"sliding_attention", yarn}}}}),
              "rope_type = \"yarn\" is not supported");
  EXPECT_SAYS(refusal(both, {{"rope_parameters", full}}),
              "expected an object with full_attention and sliding_attention");
}

TEST(HfConfig, CapsOfLogitsAndTheScaleOfQueriesAreReadAsTransformersReadsThem) {
  const auto model = [](const char* family, const Json& members) { return parse(small(family, members)).model; };
  const ModelConfig absent = model("gemma2", Json::object());
  EXPECT_EQ(absent.attn_logit_softcapping, 50);
  EXPECT_EQ(absent.final_logit_softcapping, 30);
  EXPECT_EQ(absent.query_pre_attn_scalar, 256);
  EXPECT_EQ(absent.head_dim(), 256);
  EXPECT_EQ(absent.window_of(0), 4096);
  EXPECT_EQ(absent.window_of(1), 0) << "every second layer has none";
  const Json none{{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}};
  EXPECT_EQ(model("gemma2", none).attn_logit_softcapping, 0);
  const Json written = Json::parse(hf_config_text(parse(small("gemma2", none)), Dtype::kF32));
  EXPECT_TRUE(written["attn_logit_softcapping"].is_null() && written["final_logit_softcapping"].is_null());
  EXPECT_EQ(written["hidden_activation"], "gelu_pytorch_tanh");
  EXPECT_EQ(model("gemma3_text", Json::object()).final_logit_softcapping, 0);
  EXPECT_EQ(model("gemma3_text", {{"final_logit_softcapping", 30.0}}).final_logit_softcapping, 30);
  const auto refused = [](const char* family, const Json& members) {
    return refusal(small(family, members), Json::object());
  };
  EXPECT_SAYS(refused("gemma3_text", {{"attn_logit_softcapping", 50.0}}), "attn_logit_softcapping = 50.0");
  EXPECT_SAYS(refused("gemma2", {{"attn_logit_softcapping", 0}}), "attn_logit_softcapping = 0 is not supported");
  EXPECT_SAYS(refused("gemma2", {{"use_bidirectional_attention", true}}), "use_bidirectional_attention = true");
  EXPECT_SAYS(refused("gemma2", {{"hidden_activation", "gelu"}}), "hidden_activation = \"gelu\"");
  EXPECT_SAYS(refused("llama", {{"final_logit_softcapping", 30.0}}), "final_logit_softcapping = 30.0");
  EXPECT_SAYS(refused("gemma2", {{"query_pre_attn_scalar", 0.5}}), "query_pre_attn_scalar");
}

TEST(HfConfig, TheSharedExpertOfQwen2MoeHasAWidthOfItsOwn) {
  const Json members{{"num_experts", 6}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 8}};
  Json wide = members;
  wide["shared_expert_intermediate_size"] = 20;
  const auto config = parse(small("qwen2_moe", wide));
  EXPECT_EQ(config.model.shared_intermediate_size(), 20);
  EXPECT_EQ(parse(small("qwen2_moe", members)).model.shared_intermediate_size(), 5632);
  EXPECT_EQ(Json::parse(hf_config_text(config, Dtype::kF32))["shared_expert_intermediate_size"], 20);
  EXPECT_SAYS(refusal(small("qwen2_moe", {{"qkv_bias", false}}), Json::object()), "qkv_bias = false");
  Json windows = members;
  windows.update({{"use_sliding_window", true}, {"sliding_window", 9}, {"max_window_layers", 3}});
  EXPECT_EQ(parse(small("qwen2_moe", windows)).model.full_attention_layers, (std::vector<int64_t>{1, 3}))
      << "of the first three layers every second has the window";
}

TEST(HfConfig, LayersWithAWindowOfGemma3HaveABaseOfTheirOwn) {
  const auto model = [](const Json& members) { return parse(small("gemma3_text", members)).model; };
  EXPECT_EQ(model(Json::object()).rope_theta, 1e6);
  EXPECT_EQ(model(Json::object()).window_rope_theta, 1e4);
  // As version 4 writes them.
  const ModelConfig old = model({{"rope_theta", 500.0}, {"rope_local_base_freq", 50.0}, {"sliding_window_pattern", 2}});
  EXPECT_EQ(old.rope_theta, 500);
  EXPECT_EQ(old.window_rope_theta, 50);
  EXPECT_EQ(old.full_attention_layers, (std::vector<int64_t>{1, 3}));
  EXPECT_SAYS(refusal(small("gemma3_text", {{"num_hidden_layers", 8}, {"sliding_window_pattern", 12}}), Json::object()),
              "sliding_window_pattern = 12 is not supported: a layer of this family must have full attention");
  EXPECT_EQ(Json::parse(hf_config_text(parse(small("gemma3_text", {{"sliding_window_pattern", 2}})),
                                       Dtype::kF32))["sliding_window_pattern"],
            2);
  const Json odd{{"rope_theta", 70.0}, {"factor", 2.0}};
  EXPECT_SAYS(refusal(small("gemma3_text", {{"rope_parameters", {{"sliding_attention", odd}}}}), Json::object()),
              "factor = 2.0 of layers with a window is not supported");
  const Json full{{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 700.0}};
  const Json nested{{"rope_parameters", {{"full_attention", full}, {"sliding_attention", {{"rope_theta", 70.0}}}}}};
  const ModelConfig now = model(nested);
  EXPECT_EQ(now.rope_scaling.factor, 8);
  EXPECT_EQ(now.window_rope_theta, 70);
  const auto config = parse(small("gemma3_text", nested));
  EXPECT_EQ(parse_hf_config(hf_config_text(config, Dtype::kF32), "x").model, config.model);
}

TEST(HfConfig, RatesOfDropoutAreKept) {
  const auto config = parse(small("starcoder2", {{"residual_dropout", 0.1}, {"attention_dropout", 0.0}}));
  EXPECT_EQ(config.dropouts, (std::map<std::string, double>{{"residual_dropout", 0.1}}));
  const Json written = Json::parse(hf_config_text(config, Dtype::kF32));
  EXPECT_EQ(written["residual_dropout"], 0.1);
  EXPECT_EQ(written["embedding_dropout"], 0.0);
  EXPECT_SAYS(refusal(olmoe(), {{"attention_dropout", "high"}}), "attention_dropout is \"high\"");
  EXPECT_TRUE(config.unknown_members.empty());
}

TEST(HfConfig, OptionsThatWeDoNotComputeAreRefusedByName) {
  EXPECT_SAYS(refusal(olmoe(), {{"hidden_act", "gelu"}}), "hidden_act = \"gelu\" is not supported, only \"silu\"");
  EXPECT_SAYS(refusal(olmoe(), {{"attention_bias", true}}), "attention_bias = true");
  EXPECT_SAYS(refusal(olmoe(), {{"sliding_window", 4096}}), "sliding_window = 4096 is not supported");
  EXPECT_SAYS(refusal(llama(), {{"mlp_bias", true}}), "mlp_bias = true");
  EXPECT_SAYS(refusal(llama(), {{"clip_qkv", 8.0}}), "clip_qkv = 8.0");
  EXPECT_SAYS(refusal(llama(), {{"partial_rotary_factor", 0.25}}), "partial_rotary_factor = 0.25");
  EXPECT_SAYS(refusal(llama(), {{"head_dim", 63}}), "model.head_dim (63) must be even");
  EXPECT_SAYS(refusal(llama(), {{"head_dim", "wide"}}), "head_dim is \"wide\"");
  EXPECT_SAYS(refusal(olmoe(), {{"head_dim", 64}}), "model.head_dim (64): in family olmoe it is");
  EXPECT_SAYS(refusal(qwen3_moe(), {{"mlp_only_layers", {48}}}), "mlp_only_layers has 48");
  EXPECT_SAYS(refusal(qwen3_moe(), {{"mlp_only_layers", {-1}}}), "mlp_only_layers is [-1]");
  EXPECT_SAYS(refusal(olmoe(), {{"quantization_config", {{"bits", 4}}}}), "quantization_config");
  EXPECT_SAYS(
      refusal(olmoe(), {{"model_type", "mamba"}}),
      "model_type \"mamba\" is not supported; expected one of olmo, olmo2, olmo3, olmoe, llama, qwen2, qwen2_moe");
  EXPECT_SAYS(refusal(olmoe(), {{"model_type", "mamba"}}), "the nearest is olmoe, which reads the same members");
  EXPECT_SAYS(refusal(small("gemma", {{"hidden_activation", "gelu"}, {"blocks", 3}}), Json::object()),
              "the nearest is gemma2, which differs in: hidden_activation = \"gelu\" is not supported");
  EXPECT_SAYS(refusal(small("gemma", {{"blocks", 3}}), Json::object()), "blocks = 3");
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
  EXPECT_SAYS(refusal(olmoe(), {{"num_hidden_layers", 2000000000}}), "from 1 to 65536");
  EXPECT_SAYS(refusal(olmoe(), {{"num_experts", 2000000000}}), "from 0 to 131072");
  // without walking the layers
  EXPECT_SAYS(refusal(qwen3_moe(), {{"num_hidden_layers", 2000000000}}), "from 1 to 65536");
  EXPECT_SAYS(refusal(qwen3_moe(), {{"mlp_only_layers", std::vector<int>(50, 0)}}), "has 50 entries for 48 layers");
  EXPECT_SAYS(refusal(olmoe(), {{"vocab_size", 1e300}}), "vocab_size is 1e+300");
  EXPECT_SAYS(refusal(olmoe(), {{"vocab_size", UINT64_MAX}}), "vocab_size is 18446744073709551615");
  EXPECT_SAYS(refusal(olmoe(), {{"hidden_size", int64_t{1} << 24}, {"vocab_size", int64_t{1} << 30}}), "parameters");
  EXPECT_SAYS(message_of<CheckpointError>([] { parse_hf_config("[]", "x"); }), "expected an object");
  EXPECT_SAYS(message_of<CheckpointError>([] { parse_hf_config("{\"model_type\":", "x"); }), "not valid JSON");
}

}  // namespace
}  // namespace athanor::hf_config_test
