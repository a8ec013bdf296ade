#include "checkpoint/hf_members.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "checkpoint/json_members.h"
#include "checkpoint/strict_json.h"

namespace athanor::inline checkpoint {
namespace {

// Members of every configuration in `transformers` that change no logits of the families here, and those that other
// programs leave. Members that we read, or refuse with any other value than one, are in the second list.
const std::set<std::string, std::less<>> kWithoutEffect = {"_attn_implementation",
                                                           "_attn_implementation_autoset",
                                                           "_flash_attn_2_enabled",
                                                           "_name_or_path",
                                                           "_sliding_window_pattern",
                                                           "attn_implementation",
                                                           "attn_pdrop",
                                                           "auto_map",
                                                           "aux_loss_alpha",
                                                           "bad_words_ids",
                                                           "begin_suppress_tokens",
                                                           "cache_implementation",
                                                           "chunk_size_feed_forward",
                                                           "classifier_dropout",
                                                           "cross_attention_hidden_size",
                                                           "decoder_start_token_id",
                                                           "diversity_penalty",
                                                           "do_sample",
                                                           "dtype",
                                                           "early_stopping",
                                                           "embd_pdrop",
                                                           "encoder_no_repeat_ngram_size",
                                                           "ep_size",
                                                           "experts_per_token",
                                                           "exponential_decay_length_penalty",
                                                           "finetuning_task",
                                                           "forced_bos_token_id",
                                                           "forced_eos_token_id",
                                                           "gradient_checkpointing",
                                                           "id2label",
                                                           "initial_context_length",
                                                           "is_decoder",
                                                           "keep_in_fp32",
                                                           "label2id",
                                                           "length_penalty",
                                                           "max_length",
                                                           "min_length",
                                                           "n_ctx",
                                                           "no_repeat_ngram_size",
                                                           "num_beam_groups",
                                                           "num_beams",
                                                           "num_labels",
                                                           "num_mtp_layers",
                                                           "num_nextn_predict_layers",
                                                           "num_return_sequences",
                                                           "output_attentions",
                                                           "output_hidden_states",
                                                           "output_router_logits",
                                                           "output_scores",
                                                           "prefix",
                                                           "pretraining_tp",
                                                           "problem_type",
                                                           "pruned_heads",
                                                           "qk_head_dim",
                                                           "remove_invalid_values",
                                                           "repetition_penalty",
                                                           "resid_pdrop",
                                                           "return_dict",
                                                           "return_dict_in_generate",
                                                           "sep_token_id",
                                                           "seq_aux",
                                                           "sliding_window_size",
                                                           "summary_activation",
                                                           "summary_first_dropout",
                                                           "summary_proj_to_labels",
                                                           "summary_type",
                                                           "summary_use_proj",
                                                           "suppress_tokens",
                                                           "task_specific_params",
                                                           "temperature",
                                                           "tf_legacy_loss",
                                                           "tie_encoder_decoder",
                                                           "tokenizer_class",
                                                           "top_k",
                                                           "top_p",
                                                           "torch_dtype",
                                                           "torchscript",
                                                           "transformers_version",
                                                           "typical_p",
                                                           "unsloth_fixed",
                                                           "unsloth_version",
                                                           "use_bfloat16",
                                                           "use_cache",
                                                           "use_mrope"};
const std::set<std::string, std::less<>> kReadMembers = {"add_cross_attention",
                                                         "architectures",
                                                         "attention_bias",
                                                         "attention_dropout",
                                                         "attn_logit_softcapping",
                                                         "bos_token_id",
                                                         "clip_qkv",
                                                         "decoder_sparse_step",
                                                         "embedding_dropout",
                                                         "eos_token_id",
                                                         "final_logit_softcapping",
                                                         "first_k_dense_replace",
                                                         "head_dim",
                                                         "hidden_act",
                                                         "hidden_dropout",
                                                         "hidden_size",
                                                         "initializer_range",
                                                         "intermediate_size",
                                                         "is_causal",
                                                         "is_encoder_decoder",
                                                         "kv_lora_rank",
                                                         "layer_types",
                                                         "max_position_embeddings",
                                                         "max_window_layers",
                                                         "mlp_bias",
                                                         "mlp_only_layers",
                                                         "model_type",
                                                         "moe_layer_freq",
                                                         "moe_intermediate_size",
                                                         "n_group",
                                                         "n_routed_experts",
                                                         "n_shared_experts",
                                                         "norm_topk_prob",
                                                         "num_attention_heads",
                                                         "num_experts",
                                                         "num_experts_per_tok",
                                                         "num_hidden_layers",
                                                         "num_key_value_heads",
                                                         "num_local_experts",
                                                         "original_max_position_embeddings",
                                                         "pad_token_id",
                                                         "partial_rotary_factor",
                                                         "q_lora_rank",
                                                         "qk_nope_head_dim",
                                                         "qk_rope_head_dim",
                                                         "qkv_bias",
                                                         "quantization_config",
                                                         "query_pre_attn_scalar",
                                                         "reorder_and_upcast_attn",
                                                         "residual_dropout",
                                                         "rms_norm_eps",
                                                         "rope_interleave",
                                                         "rope_local_base_freq",
                                                         "rope_parameters",
                                                         "rope_scaling",
                                                         "rope_theta",
                                                         "routed_scaling_factor",
                                                         "router_aux_loss_coef",
                                                         "router_jitter_noise",
                                                         "scale_attn_by_inverse_layer_idx",
                                                         "scale_attn_weights",
                                                         "scoring_func",
                                                         "shared_expert_intermediate_size",
                                                         "sliding_window",
                                                         "sliding_window_pattern",
                                                         "swiglu_alpha",
                                                         "swiglu_limit",
                                                         "tie_word_embeddings",
                                                         "topk_group",
                                                         "topk_method",
                                                         "use_bias",
                                                         "use_bidirectional_attention",
                                                         "use_parallel_residual",
                                                         "use_sliding_window",
                                                         "v_head_dim",
                                                         "vocab_size"};

// Members of Llama that a family does not have.
bool is_of_others(const Family& family, const std::string& name) {
  static const std::set<std::string, std::less<>> rotary = {"partial_rotary_factor", "rope_parameters", "rope_scaling",
                                                            "rope_theta"};
  if (family.positions != Positions::kRotary && rotary.contains(name)) return true;
  static const std::set<std::string, std::less<>> of_deepseek = {
      "first_k_dense_replace", "kv_lora_rank", "moe_layer_freq",   "n_group",          "n_routed_experts",
      "n_shared_experts",      "q_lora_rank",  "qk_nope_head_dim", "qk_rope_head_dim", "routed_scaling_factor",
      "rope_interleave",       "scoring_func", "topk_group",       "topk_method",      "v_head_dim"};
  if (of_deepseek.contains(name)) return !family.deepseek_experts;
  if (family.latent_attention && name == "head_dim") return false;
  if (!family.grouped_keys && !family.latent_attention && name == "num_key_value_heads") return true;
  if (name == "attn_logit_softcapping" || name == "final_logit_softcapping") return false;  // refused
  if (name == "query_pre_attn_scalar") return !family.scales_queries;
  if (name.starts_with("swiglu_")) return !family.clamps_swiglu;
  if (name == "num_local_experts") return family.has_shared_experts;
  if (name == "rope_local_base_freq") return !family.windows_own_theta;
  if (name == "sliding_window_pattern") return family.window_pattern != name;
  if (name == "use_bias" || name == "qkv_bias") return family.bias_member != name;
  if (name == "shared_expert_intermediate_size") return !family.has_shared_experts;
  if (name == "use_parallel_residual") return !family.parallel;
  return family.config_names.contains(name) && !family.config_aliases.contains(name);
}

}  // namespace

const char* own_name(const Family& family, const char* name) {
  const auto found = family.config_names.find(name);
  return found == family.config_names.end() ? name : found->second.c_str();
}

const char* given_name(const Family& family, const nlohmann::json& json, const char* name) {
  const char* own = own_name(family, name);
  return !json.contains(own) && family.config_aliases.contains(name) ? name : own;
}

void refuse_two_values(const Family& family, const nlohmann::json& json, std::vector<std::string>& problems) {
  for (const std::string& name : family.config_aliases) {
    const char* own = own_name(family, name.c_str());
    if (json.contains(own) && json.contains(name) && json[own] != json[name])
      problems.push_back(fmt::format("{} is {} and {} is {}, which are two names of one member", own,
                                     JsonMembers::shown(json[own]), name, JsonMembers::shown(json[name])));
  }
}

void refuse_activation(const Family& family, const nlohmann::json& json, std::vector<std::string>& problems) {
  const std::vector<std::string> names = activation_names(family.feed_forward);
  const char* key = own_name(family, "hidden_act");
  const auto* given = JsonMembers(json, problems).find(key);
  if (!given || std::ranges::any_of(names, [&](const std::string& name) { return *given == name; })) return;
  problems.push_back(
      fmt::format("{} = {} is not supported, only \"{}\"", key, JsonMembers::shown(*given), join(names, "\" or \"")));
}

std::map<std::string, double> read_dropouts(const nlohmann::json& json, std::vector<std::string>& problems) {
  JsonMembers members(json, problems);
  std::map<std::string, double> rates;
  for (const char* key : {"attention_dropout", "attn_pdrop", "embd_pdrop", "embedding_dropout", "hidden_dropout",
                          "resid_pdrop", "residual_dropout"}) {
    if (const double rate = members.number(key, 0); rate > 0) rates[key] = rate;
  }
  return rates;
}

std::vector<std::string> find_unknown_members(const Family& family, const nlohmann::json& json) {
  std::vector<std::string> unknown;
  std::set<std::string, std::less<>> own;
  for (const auto& [name, of_family] : family.config_names) own.insert(of_family);
  for (const auto& [key, value] : json.items()) {
    if (!value.is_null() && !kWithoutEffect.contains(key) && !own.contains(key) &&
        (!kReadMembers.contains(key) || is_of_others(family, key)))
      unknown.push_back(fmt::format("{} = {}", shown_text(key), JsonMembers::shown(value)));
  }
  return unknown;
}

}  // namespace athanor::inline checkpoint
