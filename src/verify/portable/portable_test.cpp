// Compares one rank's code with portable forms in fp64: they agree within what rounding explains, for every family and
// way of routing, and the comparison finds what only one of the two does.
#include <gtest/gtest.h>

#include "base/testing/folder_test.h"
#include "verify/compare.h"
#include "verify/portable/portable_balance.h"
#include "verify/portable/portable_run.h"
#include "verify/small_model.h"
#include "verify/traced_run.h"

namespace athanor::portable_test {
namespace {

namespace fs = std::filesystem;
using Change = std::function<void(RunConfig&)>;

RunConfig dense(const std::string& family) {
  RunConfig c;
  c.model.family = family;
  c.model.hidden_size = 32;
  c.model.num_hidden_layers = 2;
  c.model.num_attention_heads = 4;
  c.model.num_key_value_heads = 2;
  c.model.intermediate_size = 24;
  c.model.vocab_size = 90;
  c.model.initializer_range = 0.12;
  c.data.seq_len = 12;
  c.train.global_batch_size = 4;
  c.train.micro_batch_size = 2;
  c.optimizer.lr = 2e-3;
  return c;
}

RunConfig sparse(const std::string& family = "olmoe") {
  RunConfig c = dense(family);
  c.model.num_experts = 8;
  c.model.num_experts_per_tok = 2;
  c.moe.router_aux_loss_coef = 0.1;
  c.moe.router_z_loss_coef = 0.01;
  c.checkpoint.model_interval = 0;
  return c;
}

class PortableTest : public FolderTest {
 protected:
  PortableTest() { at::set_num_threads(1); }  // small models have no work for more
  // Compares `ours`, computed by the code that trains, with portable forms of `right`. It draws other data if a token
  // is undecided between two experts.
  Comparisons compare(const RunConfig& ours, const RunConfig& right) {
    Comparisons found;
    for (const uint64_t draw : {1, 2, 3}) {
      const WholeTrace layout = read(trace_run(small(ours), draw, nullptr), "ours");
      found = compare_traces(small(right), 1, layout, read(trace_portable_run(small(right), draw, layout), "portable"),
                             Reference::kPortable);
      if (!found.near_tie) break;
    }
    return found;
  }
  static RunConfig small(const RunConfig& config) {
    return make_small_run(config, 1, {.steps = 3, .dtype = "float32", .keep_size = true});
  }
  WholeTrace read(const Trace& trace, const char* name) {
    fs::create_directories(folder_ / name);
    trace.write(folder_ / name / WholeTrace::file_name(0));
    return WholeTrace::read(folder_ / name, 1);
  }
  void expect_equal(const RunConfig& config, const std::string& what) {
    const Comparisons found = compare(config, config);
    for (const auto& fault : found.faults) ADD_FAILURE() << what << ": " << fault;
    for (const auto& c : found.worst) EXPECT_LE(c.share(), 0.5) << what << ": " << c.quantity << " " << c.name;
  }
  void expect_named(RunConfig config, const std::string& name, const Change& change) {
    const RunConfig right = config;
    change(config);
    const auto faults = compare(config, right).faults;
    EXPECT_TRUE(std::ranges::any_of(faults, [&](const auto& f) { return f.find(name) != std::string::npos; }))
        << "nothing names " << name << "; " << (faults.empty() ? "no faults" : faults[0]);
  }
};

TEST_F(PortableTest, EveryFamilyComputesWhatItsDefinitionSays) {
  for (const char* family : {"olmo", "llama", "qwen2", "qwen3", "gpt2", "olmo2", "gpt_neox", "phi3"})
    expect_equal(dense(family), family);
  for (const char* family : {"olmoe", "qwen3_moe"}) expect_equal(sparse(family), family);
  RunConfig gated = sparse("qwen2_moe");
  gated.model.num_shared_experts = 1;
  gated.model.shared_expert_intermediate_size = 12;
  expect_equal(gated, "qwen2_moe");
  RunConfig latent = sparse("deepseek_v2");
  latent.model.num_key_value_heads = latent.model.attention_head_dim = 0;
  latent.model.num_shared_experts = 1;
  latent.model.kv_lora_rank = 7, latent.model.qk_nope_head_dim = 4, latent.model.qk_rope_head_dim = 2;
  latent.model.norm_topk_prob = false;
  for (const int64_t of_values : {3, 9}) {  // less than queries and keys have, and more
    latent.model.v_head_dim = of_values;
    expect_equal(latent, "deepseek_v2");
    latent.model.q_lora_rank = 5;
    latent.model.num_experts = 8, latent.model.n_group = 4, latent.model.topk_group = 2;
    latent.model.mlp_only_layers = {0};
  }
  for (const char* family : {"starcoder2", "olmo3"}) {  // with layers in a window, and olmo3 with all kinds of them
    RunConfig config = dense(family);
    config.model.sliding_window = 4;
    if (config.model.family == "olmo3") {
      config.model.full_attention_layers = {1};
      config.model.rope_scaling = {.rope_type = "linear", .factor = 3};
      config.data.attention_scope = "document";
    }
    expect_equal(config, family);
  }
  for (const char* family : {"gemma2", "gemma3_text"}) {
    RunConfig config = dense(family);
    config.model.sliding_window = 4;
    config.model.full_attention_layers = {1};
    config.model.query_pre_attn_scalar = 3;
    config.model.final_logit_softcapping = 1.5;
    if (config.model.family == "gemma2") config.model.attn_logit_softcapping = 0.7;
    if (config.model.family == "gemma3_text") config.model.window_rope_theta = 50;
    expect_equal(config, family);
  }
}

TEST_F(PortableTest, ModelsWithOddOptionsDoToo) {
  const std::vector<std::pair<const char*, Change>> changes = {
      {"tied", [](RunConfig& c) { c.model.tie_word_embeddings = true; }},
      {"clip_qkv", [](RunConfig& c) { c.model.clip_qkv = 0.4; }},
      {"documents", [](RunConfig& c) { c.data.attention_scope = "document"; }},
      {"linear", [](RunConfig& c) { c.model.rope_scaling = {.rope_type = "linear", .factor = 3}; }},
      {"dynamic", [](RunConfig& c) { c.model.rope_scaling = {.rope_type = "dynamic", .factor = 3}; }},
      {"llama3",
       [](RunConfig& c) {
         c.model.rope_scaling = {.rope_type = "llama3", .factor = 4, .original_max_position_embeddings = 20};
       }},
      {"yarn",
       [](RunConfig& c) {
         c.model.rope_scaling = {.rope_type = "yarn", .factor = 4, .original_max_position_embeddings = 64};
       }},
      {"yarn, mscale",
       [](RunConfig& c) {
         c.model.rope_scaling = {.rope_type = "yarn",
                                 .factor = 8,
                                 .original_max_position_embeddings = 512,
                                 .beta_fast = 4,
                                 .mscale = 1,
                                 .mscale_all_dim = 0.5,
                                 .truncate = false};
       }},
      {"clipping", [](RunConfig& c) { c.optimizer.max_grad_norm = 0.05; }},
      {"no clipping", [](RunConfig& c) { c.optimizer.max_grad_norm = 0; }},
      {"decay",
       [](RunConfig& c) {
         c.optimizer.weight_decay = 2;
         c.optimizer.betas = {0.8, 0.95};
         c.optimizer.eps = 1e-4;
         c.optimizer.no_weight_decay = {"*norm.weight", "model.layers.1.*"};
       }},
      {"sophiag", [](RunConfig& c) { c.optimizer.name = "sophiag"; }},
  };
  for (const auto& [what, change] : changes) {
    RunConfig c = sparse();
    change(c);
    expect_equal(c, what);
  }
}

TEST_F(PortableTest, EveryWayOfRoutingAndBalancingDoesToo) {
  const std::vector<std::pair<const char*, Change>> changes = {
      {"sigmoid, normed, scaled",
       [](RunConfig& c) {
         c.model.router_score = "sigmoid";
         c.model.norm_topk_prob = true;
         c.model.routed_scaling_factor = 2.5;
       }},
      {"shared experts", [](RunConfig& c) { c.model.num_shared_experts = 2; }},
      {"all experts", [](RunConfig& c) { c.model.num_experts_per_tok = 8; }},
      {"global", [](RunConfig& c) { c.moe.aux_scope = "global"; }},
      {"pooled", [](RunConfig& c) { c.moe.aux_scope = "transformers"; }},
      {"bias and noise",
       [](RunConfig& c) {
         c.moe.bias_update_rate = 0.02;
         c.moe.router_noise = 0.3;
       }},
      {"before", [](RunConfig& c) { c.moe.combine_weights = "before"; }},
      {"capacity by score",
       [](RunConfig& c) {
         c.moe.balance = "capacity";
         c.moe.capacity_factor = 0.8;
         c.model.norm_topk_prob = true;
       }},
      {"capacity by position",
       [](RunConfig& c) {
         c.moe.balance = "capacity";
         c.moe.balance_group = 2;
         c.moe.capacity_order = "position";
       }},
      {"swipe", [](RunConfig& c) { c.moe.balance = "swipe"; }},
      {"swipe, many choices",
       [](RunConfig& c) {
         c.moe.balance = "swipe";
         c.model.num_experts_per_tok = 6;
         c.model.norm_topk_prob = true;
       }},
      {"forced_uniform", [](RunConfig& c) { c.moe.balance = "forced_uniform"; }},
      {"dense layers", [](RunConfig& c) {
         c.model.family = "qwen3_moe";
         c.model.moe_intermediate_size = 12;
         c.model.mlp_only_layers = {1};
       }}};
  for (const auto& [what, change] : changes) {
    RunConfig c = sparse();
    change(c);
    expect_equal(c, what);
  }
}

// A run of another configuration simulates a mistake in one rank's code.
TEST_F(PortableTest, WhatOneOfTheTwoDoesOtherwiseIsNamed) {
  RunConfig scaled = sparse();
  scaled.model.routed_scaling_factor = 2.5;
  expect_named(scaled, "mlp.experts.", [](RunConfig& c) { c.model.routed_scaling_factor = 1; });
  expect_named(sparse(), "mlp.gate.weight", [](RunConfig& c) { c.moe.router_aux_loss_coef *= 1.01; });
  expect_named(sparse(), "mlp.gate.weight", [](RunConfig& c) { c.moe.router_z_loss_coef = 0; });
  expect_named(sparse(), "aux", [](RunConfig& c) { c.moe.aux_scope = "transformers"; });
  expect_named(sparse(), "self_attn.", [](RunConfig& c) { c.model.rope_theta = 9000; });
  expect_named(dense("llama"), "input_layernorm", [](RunConfig& c) { c.model.rms_norm_eps = 2e-5; });
  expect_named(sparse(), "parameters: ", [](RunConfig& c) { c.optimizer.weight_decay = 0.2; });
  expect_named(sparse(), "parameters: ", [](RunConfig& c) { c.optimizer.betas = {0.9, 0.9}; });
  expect_named(sparse(), "parameters: ", [](RunConfig& c) { c.optimizer.no_weight_decay = {"*norm.weight"}; });
  expect_named(sparse(), "initial parameters", [](RunConfig& c) { c.model.initializer_range = 0.13; });
  RunConfig documents = sparse();
  documents.data.attention_scope = "document";
  expect_named(documents, "loss", [](RunConfig& c) { c.data.attention_scope = "instance"; });
}

TEST(PortableBalance, EqualScoresGoToTheLowerExpert) {
  EXPECT_EQ(portable::choose_best({{1, 2, 2, 0}}, 3), (portable::Choices{{1, 2, 0}}));
}

TEST(PortableBalance, AFullExpertKeepsTheHighestScoresOrTheFirst) {
  MoeConfig moe;
  moe.balance = "capacity";
  moe.capacity_factor = 1;
  const portable::Choices chosen = {{0}, {0}, {0}, {1}};  // two each
  const std::vector<std::vector<double>> scores = {{0.5, 0}, {0.9, 0}, {0.7, 0}, {0, 1}};
  EXPECT_EQ(portable::balance(moe, chosen, scores, 2), (portable::Choices{{portable::kDropped}, {0}, {0}, {1}}));
  moe.capacity_order = "position";
  EXPECT_EQ(portable::balance(moe, chosen, scores, 2), (portable::Choices{{0}, {0}, {portable::kDropped}, {1}}));
}

}  // namespace
}  // namespace athanor::portable_test
