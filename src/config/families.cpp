#include "config/families.h"

namespace athanor::inline config {
namespace {

/// The sizes are in the order of a table in a paper; kv_heads 0 means one for each head.
ModelConfig defaults(int64_t vocabulary, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads,
                     int64_t intermediate, int64_t positions, double eps) {
  ModelConfig m;
  m.vocab_size = vocabulary;
  m.hidden_size = hidden;
  m.num_hidden_layers = layers;
  m.num_attention_heads = heads;
  m.num_key_value_heads = kv_heads;
  m.intermediate_size = intermediate;
  m.max_position_embeddings = positions;
  m.rms_norm_eps = eps;
  return m;
}

Family named(const char* name, const char* architecture) {
  Family f;
  f.name = name;
  f.architecture = architecture;
  return f;
}

Family olmo() {
  Family f = named("olmo", "OlmoForCausalLM");
  f.norm = NormKind::kLayerWithoutParameters;
  f.fixed_norm_eps = 1e-5;
  f.clips_qkv = true;
  f.defaults = defaults(50304, 4096, 32, 32, 0, 11008, 2048, 1e-5);
  f.default_eos = 50279;
  f.default_pad = 1;
  return f;
}

Family olmoe() {
  Family f = named("olmoe", "OlmoeForCausalLM");
  f.qk_norm = QkNorm::kWhole;
  f.sparse = true;
  f.clips_qkv = true;
  f.defaults = defaults(50304, 2048, 16, 16, 0, 2048, 4096, 1e-5);
  f.defaults.num_experts = 64;
  f.defaults.num_experts_per_tok = 8;
  f.default_eos = 50279;
  f.default_pad = 1;
  return f;
}

Family llama() {
  Family f = named("llama", "LlamaForCausalLM");
  f.free_head_dim = true;
  f.defaults = defaults(32000, 4096, 32, 32, 0, 11008, 2048, 1e-6);
  f.default_bos = 1;
  f.default_eos = 2;
  return f;
}

Family qwen3() {
  Family f = named("qwen3", "Qwen3ForCausalLM");
  f.qk_norm = QkNorm::kHead;
  f.free_head_dim = true;
  f.heads_divide_hidden = false;
  f.has_window = f.mixes_windows = f.sliding_window_switch = true;
  f.defaults = defaults(151936, 4096, 32, 32, 32, 22016, 32768, 1e-6);
  f.defaults.attention_head_dim = 128;
  f.defaults.sliding_window = 4096;
  return f;
}

Family qwen3_moe() {
  Family f = named("qwen3_moe", "Qwen3MoeForCausalLM");
  f.qk_norm = QkNorm::kHead;
  f.sparse = true;
  f.mixed_layers = true;
  f.free_head_dim = true;
  f.heads_divide_hidden = false;
  f.has_window = f.sliding_window_switch = true;
  f.defaults = defaults(151936, 2048, 24, 32, 4, 6144, 32768, 1e-6);
  f.defaults.num_experts = 128;
  f.defaults.num_experts_per_tok = 8;
  f.defaults.moe_intermediate_size = 768;
  f.defaults.sliding_window = 4096;
  f.default_aux_loss_coef = 0.001;
  return f;
}

// The norms stand after attention and feed-forward (OLMo 2, Team OLMo 2024, §3.2).
Family olmo2() {
  Family f = named("olmo2", "Olmo2ForCausalLM");
  f.names.attention_norm = f.names.feed_forward_norm = "";
  f.names.attention_out_norm = "post_attention_layernorm";
  f.names.feed_forward_out_norm = "post_feedforward_layernorm";
  f.qk_norm = QkNorm::kWhole;
  f.defaults = defaults(50304, 4096, 32, 32, 0, 11008, 2048, 1e-5);
  f.default_eos = 50279;
  f.default_pad = 1;
  return f;
}

Family olmo3() {
  Family f = olmo2();
  f.name = "olmo3";
  f.architecture = "Olmo3ForCausalLM";
  f.has_window = f.mixes_windows = f.windows_unscaled = true;
  f.full_attention_every = 4;
  f.defaults.sliding_window = 4096;
  f.defaults.rope_theta = 500000;
  return f;
}

Family qwen2() {
  Family f = named("qwen2", "Qwen2ForCausalLM");
  f.biases = Biases::kQkv;
  f.bias_member = "";
  f.has_window = f.mixes_windows = f.sliding_window_switch = true;
  f.defaults = defaults(151936, 4096, 32, 32, 32, 22016, 32768, 1e-6);
  f.defaults.sliding_window = 4096;
  return f;
}

// Every sparse layer has a shared expert, whose result a gate of each token scales.
Family qwen2_moe() {
  Family f = qwen2();
  f.name = "qwen2_moe";
  f.architecture = "Qwen2MoeForCausalLM";
  f.names.shared_experts = "shared_expert";
  f.names.shared_gate = "shared_expert_gate";
  f.bias_member = "qkv_bias";
  f.sparse = f.has_shared_experts = f.mixed_layers = true;
  f.windows_alternate = true;
  f.defaults = defaults(151936, 2048, 24, 16, 16, 5632, 32768, 1e-6);
  f.defaults.num_experts = 60;
  f.defaults.num_experts_per_tok = 4;
  f.defaults.moe_intermediate_size = 1408;
  f.defaults.num_shared_experts = 1;
  f.defaults.shared_expert_intermediate_size = 5632;
  f.defaults.sliding_window = 4096;
  f.default_aux_loss_coef = 0.001;
  return f;
}

Family mistral() {
  Family f = named("mistral", "MistralForCausalLM");
  f.bias_member = "";
  f.free_head_dim = true;
  f.heads_divide_hidden = false;
  f.has_window = true;
  f.defaults = defaults(32000, 4096, 32, 32, 8, 14336, 131072, 1e-6);
  f.defaults.sliding_window = 4096;
  f.default_bos = 1;
  f.default_eos = 2;
  return f;
}

Family mixtral() {
  Family f = named("mixtral", "MixtralForCausalLM");
  f.bias_member = "";
  f.names.feed_forward = "block_sparse_moe";
  f.names.gate = "w1", f.names.up = "w3", f.names.down = "w2";
  f.names_of_class = {{".mlp.", ".block_sparse_moe."}};
  f.sparse = f.norms_topk = true;
  f.free_head_dim = true;
  f.heads_divide_hidden = false;
  f.has_window = true;
  f.config_names = {{"num_experts", "num_local_experts"}};
  f.config_aliases = {"num_experts"};
  f.defaults = defaults(32000, 4096, 32, 32, 8, 14336, 131072, 1e-5);
  f.defaults.rope_theta = 1e6;
  f.defaults.norm_topk_prob = true;
  f.defaults.num_experts = 8;
  f.defaults.num_experts_per_tok = 2;
  f.default_bos = 1;
  f.default_eos = 2;
  f.default_aux_loss_coef = 0.001;
  return f;
}

Family starcoder2() {
  Family f = named("starcoder2", "Starcoder2ForCausalLM");
  f.names.up = "c_fc", f.names.down = "c_proj";
  f.norm = NormKind::kLayer;
  f.feed_forward = FeedForwardKind::kGeluTanh;
  f.activation = "gelu_pytorch_tanh";
  f.dropouts = {"attention_dropout", "residual_dropout", "embedding_dropout"};
  f.biases = Biases::kAll;
  f.bias_member = "use_bias";
  f.has_window = true;
  f.config_names = {{"rms_norm_eps", "norm_epsilon"}};
  f.defaults = defaults(49152, 3072, 30, 24, 2, 12288, 4096, 1e-5);
  f.defaults.tie_word_embeddings = true;
  f.defaults.initializer_range = 0.018042;
  f.default_bos = 50256;
  f.default_eos = 50256;
  return f;
}

// Black et al. 2022; Pythia (Biderman et al. 2023) has the same blocks.
Family gpt_neox() {
  Family f = named("gpt_neox", "GPTNeoXForCausalLM");
  f.names = {.embedding = "gpt_neox.embed_in",
             .layers = "gpt_neox.layers",
             .final_norm = "gpt_neox.final_layer_norm",
             .head = "embed_out",
             .attention = "attention",
             .attention_out = "dense",
             .up = "dense_h_to_4h",
             .down = "dense_4h_to_h",
             .fused_qkv = "query_key_value"};
  f.norm = NormKind::kLayer;
  f.feed_forward = FeedForwardKind::kGelu;
  f.activation = "gelu";
  f.dropouts = {"attention_dropout", "hidden_dropout"};
  f.biases = Biases::kAll;
  f.qkv_by_heads = f.parallel = f.partial_rotation = true;
  f.grouped_keys = false;
  f.config_names = {
      {"rms_norm_eps", "layer_norm_eps"}, {"rope_theta", "rotary_emb_base"}, {"partial_rotary_factor", "rotary_pct"}};
  f.names_of_class = {{"lm_head.", "embed_out."}};
  f.buffers = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"};
  f.defaults = defaults(50432, 6144, 44, 64, 0, 24576, 2048, 1e-5);
  f.defaults.partial_rotary_factor = 0.25;
  f.default_bos = 0;
  f.default_eos = 2;
  return f;
}

Family phi3() {
  Family f = named("phi3", "Phi3ForCausalLM");
  f.names.fused_qkv = "qkv_proj";
  f.names.fused_gate_up = "gate_up_proj";
  f.bias_member = "";
  f.dropouts = {"attention_dropout", "embd_pdrop", "resid_pdrop"};
  f.partial_rotation = true;
  f.longrope_alone = true;
  f.has_window = true;
  f.defaults = defaults(32064, 3072, 32, 32, 0, 8192, 4096, 1e-5);
  f.default_bos = 1;
  f.default_eos = 32000;
  f.default_pad = 32000;
  return f;
}

// Gemma Team 2024: norms before and after each part, whose scales begin as 0 and stand for 1, caps of logits, and every
// second layer without a window.
Family gemma2() {
  Family f = named("gemma2", "Gemma2ForCausalLM");
  f.names.attention_out_norm = "post_attention_layernorm";
  f.names.feed_forward_norm = "pre_feedforward_layernorm";
  f.names.feed_forward_out_norm = "post_feedforward_layernorm";
  f.norm_offset = 1;
  f.scales_queries = f.caps_attention = f.caps_output = f.scales_embedding = true;
  f.feed_forward = FeedForwardKind::kGeGlu;
  f.activation = "gelu_pytorch_tanh";
  f.free_head_dim = true;
  f.has_window = f.mixes_windows = true;
  f.full_attention_every = 2;
  f.config_names = {{"hidden_act", "hidden_activation"}};
  f.config_aliases = {"hidden_act"};
  f.defaults = defaults(256000, 2304, 26, 8, 4, 9216, 8192, 1e-6);
  f.defaults.attention_head_dim = f.defaults.query_pre_attn_scalar = 256;
  f.defaults.attn_logit_softcapping = 50;
  f.defaults.final_logit_softcapping = 30;
  f.defaults.sliding_window = 4096;
  f.defaults.tie_word_embeddings = true;
  f.default_bos = 2;
  f.default_eos = 1;
  f.default_pad = 0;
  return f;
}

// Gemma Team 2025: a norm of queries and keys in each head instead of the cap of attention's logits.
Family gemma3_text() {
  Family f = gemma2();
  f.name = "gemma3_text";
  f.architecture = "Gemma3ForCausalLM";
  f.qk_norm = QkNorm::kHead;
  f.caps_attention = false;
  f.full_attention_every = 6;
  f.window_pattern = "sliding_window_pattern";
  f.windows_unscaled = f.windows_own_theta = true;
  f.defaults.vocab_size = 262208;
  f.defaults.max_position_embeddings = 131072;
  f.defaults.rope_theta = 1e6;
  f.defaults.window_rope_theta = 1e4;
  f.defaults.attn_logit_softcapping = f.defaults.final_logit_softcapping = 0;
  return f;
}

// DeepSeek-AI 2024: keys and values are made of a small vector of each token, which is all that a cache has to hold.
Family deepseek_v2() {
  Family f = named("deepseek_v2", "DeepseekV2ForCausalLM");
  f.latent_attention = f.deepseek_experts = true;
  f.sparse = f.has_shared_experts = f.mixed_layers = true;
  f.grouped_keys = false;
  f.heads_divide_hidden = false;
  f.config_names = {{"num_experts", "n_routed_experts"}};
  f.config_aliases = {"num_experts"};
  f.defaults = defaults(102400, 4096, 32, 32, 0, 11008, 2048, 1e-6);
  f.defaults.num_experts = 64;
  f.defaults.num_experts_per_tok = 6;  // a file must tell it
  f.defaults.moe_intermediate_size = 1407;
  f.defaults.num_shared_experts = 2;
  f.defaults.q_lora_rank = 1536;
  f.defaults.kv_lora_rank = 512;
  f.defaults.qk_nope_head_dim = f.defaults.v_head_dim = 128;
  f.defaults.qk_rope_head_dim = 64;
  f.default_bos = 1;
  f.default_eos = 2;
  return f;
}

// DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", §2.1.2: sigmoids, and a bias of each expert that balances without a
// loss. Its published files have a 62nd layer, for the prediction of a further token (§2.2).
Family deepseek_v3() {
  Family f = deepseek_v2();
  f.name = "deepseek_v3";
  f.architecture = "DeepseekV3ForCausalLM";
  f.names.router_bias = "e_score_correction_bias";
  f.router_score = RouterScore::kSigmoid;
  f.layer_left_out = 61;
  f.config_aliases = {};
  f.defaults.vocab_size = 129280;
  f.defaults.hidden_size = 7168;
  f.defaults.num_hidden_layers = 61;
  f.defaults.num_attention_heads = 128;
  f.defaults.intermediate_size = 18432;
  f.defaults.max_position_embeddings = 4096;
  f.defaults.num_experts = 256;
  f.defaults.num_experts_per_tok = 8;
  f.defaults.moe_intermediate_size = 2048;
  f.defaults.num_shared_experts = 1;
  f.defaults.routed_scaling_factor = 2.5;
  f.defaults.norm_topk_prob = true;
  f.defaults.router_score = "sigmoid";
  f.defaults.n_group = 8;
  f.defaults.topk_group = 4;
  f.default_bos = 0;
  f.default_eos = 1;
  return f;
}

// OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", §2.
Family gpt_oss() {
  Family f = named("gpt_oss", "GptOssForCausalLM");
  f.names.router = "router";
  f.names.sinks = "sinks";
  f.names.stacked_gate_up = "gate_up_proj";
  f.names.stacked_down = "down_proj";
  f.biases = Biases::kAll;
  f.expert_biases = f.clamps_swiglu = true;
  f.sparse = f.norms_topk = true;
  f.free_head_dim = true;
  f.heads_divide_hidden = false;
  f.has_window = f.mixes_windows = true;
  f.full_attention_every = 2;
  f.config_names = {{"num_experts", "num_local_experts"}};
  f.config_aliases = {"num_experts"};
  f.defaults = defaults(201088, 2880, 36, 64, 8, 2880, 131072, 1e-5);
  f.defaults.attention_head_dim = 64;
  f.defaults.num_experts = 128;
  f.defaults.num_experts_per_tok = 4;
  f.defaults.sliding_window = 128;
  f.defaults.rope_theta = 150000;
  f.defaults.rope_scaling.rope_type = "yarn";
  f.defaults.rope_scaling.factor = 32;
  f.defaults.rope_scaling.original_max_position_embeddings = 4096;
  f.defaults.rope_scaling.truncate = false;
  f.defaults.swiglu_alpha = 1.702;
  f.defaults.swiglu_limit = 7;
  f.default_aux_loss_coef = 0.001;
  return f;
}

// Radford et al. 2019; the sizes are those of its smallest model.
Family gpt2() {
  Family f = named("gpt2", "GPT2LMHeadModel");
  f.names = {.embedding = "transformer.wte",
             .positions = "transformer.wpe",
             .layers = "transformer.h",
             .final_norm = "transformer.ln_f",
             .attention_norm = "ln_1",
             .attention = "attn",
             .feed_forward_norm = "ln_2",
             .attention_out = "c_proj",
             .up = "c_fc",
             .down = "c_proj",
             .fused_qkv = "c_attn"};
  f.norm = NormKind::kLayer;
  f.positions = Positions::kLearned;
  f.feed_forward = FeedForwardKind::kGeluTanh;
  f.activation = "gelu_new";
  f.dropouts = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
  f.biases = Biases::kAll;
  f.bias_member = "";
  f.transposed = true;
  f.scales_by_layer = true;
  f.small_residuals = true;
  f.grouped_keys = false;
  f.config_names = {{"hidden_size", "n_embd"},
                    {"num_hidden_layers", "n_layer"},
                    {"num_attention_heads", "n_head"},
                    {"intermediate_size", "n_inner"},
                    {"max_position_embeddings", "n_positions"},
                    {"rms_norm_eps", "layer_norm_epsilon"},
                    {"hidden_act", "activation_function"}};
  f.config_aliases = {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"};
  f.buffers = {".attn.bias", ".attn.masked_bias"};
  f.defaults = defaults(50257, 768, 12, 12, 0, 3072, 1024, 1e-5);
  f.feed_forward_factor = 4;
  f.defaults.tie_word_embeddings = true;
  f.default_bos = 50256;
  f.default_eos = 50256;
  return f;
}

// Lin et al. 2021, as BaGuaLu (Ma et al. 2022, §5.1) trains it: the blocks of GPT-2, with experts of two matrices.
// Without its images.
Family m6() {
  Family f = gpt2();
  f.name = "m6";
  f.architecture = "";
  f.names.fused_qkv = "";
  f.transposed = f.scales_by_layer = false;
  f.sparse = true;
  f.defaults.num_experts = 240;
  f.defaults.num_experts_per_tok = 1;
  return f;
}

}  // namespace

std::vector<std::string> activation_names(FeedForwardKind kind) {
  if (kind == FeedForwardKind::kSwiGlu) return {"silu"};
  if (kind == FeedForwardKind::kGelu) return {"gelu"};
  if (kind == FeedForwardKind::kGeGlu) return {"gelu_pytorch_tanh"};
  return {"gelu_new", "gelu_pytorch_tanh"};
}

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      olmo(),  olmo2(),     olmo3(),       olmoe(),       llama(),       qwen2(),   qwen2_moe(),
      qwen3(), qwen3_moe(), mistral(),     mixtral(),     starcoder2(),  gpt2(),    gpt_neox(),
      phi3(),  gemma2(),    gemma3_text(), deepseek_v2(), deepseek_v3(), gpt_oss(), m6()};
  return all;
}

}  // namespace athanor::inline config
