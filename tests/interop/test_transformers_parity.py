"""Our models are those of `transformers`: logits, losses, every gradient and three optimizer steps, in float32.

`transformers` builds and saves small random models; `athanor_parity` reads the folder. The reference is the same model in
float64, and the bound is the possible effect of float32 (rounding.py). `transformers` in float32 has to pass as well, which
tests the bound itself. The interface of the program:

    athanor_parity HF_DIR INPUT OUTPUT [--document-attention EOS_ID] [--steps N --lr LR]

INPUT has int64 `tokens` [B, T]. OUTPUT has `logits` [B, T, V], `loss` (mean cross entropy of the B * (T - 1) targets),
`aux_loss` (pooled over layers, unscaled; models with experts) and `grad.<logical name>` of
loss + router_aux_loss_coef * aux_loss. With --steps, it also has `param.<logical name>` after N steps of AdamW on these tokens,
with betas 0.9 and 0.99, eps 1e-8, weight decay 0.1 on all, constant rate, no clipping.
"""
import itertools
import json
import os

import pytest
import torch
from rounding import InDouble, Reference
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, DeepseekV2Config, DeepseekV3Config, Gemma2Config, Gemma3TextConfig, GPT2Config,
                          GPTNeoXConfig, GptOssConfig, LlamaConfig, MistralConfig, MixtralConfig, Olmo2Config, Olmo3Config, OlmoConfig, OlmoeConfig,
                          Phi3Config, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig, Starcoder2Config)
from transformers.models.olmoe.modeling_olmoe import load_balancing_loss_func

torch.set_num_threads(1)  # the models are tiny: a second thread only waits

EOS = 0
DENSE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, intermediate_size=96,
             vocab_size=200)
SPARSE = dict(DENSE, intermediate_size=32, num_experts=8, num_experts_per_tok=2, router_aux_loss_coef=0.05)
ODD = dict(hidden_size=60, num_hidden_layers=3, num_attention_heads=5, num_key_value_heads=5, intermediate_size=37,
           vocab_size=131)

GROUPED = dict(DENSE, num_key_value_heads=2, head_dim=24)
QWEN3_MOE = dict(GROUPED, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, router_aux_loss_coef=0.05,
                 rope_parameters=dict(rope_type="default", rope_theta=1e6))


GEMMA = dict(GROUPED, query_pre_attn_scalar=30)
NEOX = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, vocab_size=200)
LATENTS = dict(kv_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, moe_intermediate_size=32,
               n_routed_experts=8, num_experts_per_tok=3, router_aux_loss_coef=0.05)
GPT2 = dict(n_embd=64, n_layer=2, n_head=4, n_inner=96, vocab_size=200)


def scaled(rope_type, **fields):
    """A small model in which every frequency is a separate case: some dims turn often in 16 positions, some hardly."""
    rope = dict(rope_type=rope_type, rope_theta=500.0, **fields)
    return LlamaConfig, dict(DENSE, hidden_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                             intermediate_size=40, vocab_size=90, rope_parameters=rope)


VARIANTS = {
    "olmo": (OlmoConfig, DENSE),
    "olmo-tied": (OlmoConfig, dict(DENSE, tie_word_embeddings=True)),
    "olmo-clip": (OlmoConfig, dict(DENSE, clip_qkv=0.6)),
    "olmo-gqa": (OlmoConfig, dict(DENSE, num_key_value_heads=2)),
    "olmo-odd": (OlmoConfig, dict(ODD, rope_theta=500.0)),
    "olmoe": (OlmoeConfig, SPARSE),
    "olmoe-tied": (OlmoeConfig, dict(SPARSE, tie_word_embeddings=True)),
    "olmoe-clip": (OlmoeConfig, dict(SPARSE, clip_qkv=1.2)),
    "olmoe-gqa": (OlmoeConfig, dict(SPARSE, num_key_value_heads=1)),
    "olmoe-norm-topk": (OlmoeConfig, dict(SPARSE, norm_topk_prob=True)),
    "olmoe-odd": (OlmoeConfig, dict(SPARSE, **ODD) | dict(num_experts=7, num_experts_per_tok=3, rms_norm_eps=1e-3)),
    "olmoe-all-experts": (OlmoeConfig, dict(SPARSE, num_experts=4, num_experts_per_tok=4)),
    "olmoe-idle-experts": (OlmoeConfig, dict(SPARSE, num_experts=24, num_experts_per_tok=1)),
    "llama": (LlamaConfig, dict(DENSE, num_key_value_heads=2, rope_parameters=dict(rope_type="default", rope_theta=5e5))),
    "llama-tied": (LlamaConfig, dict(GROUPED, tie_word_embeddings=True, rms_norm_eps=1e-3)),
    "llama-linear": scaled("linear", factor=3.0),
    "llama-dynamic": scaled("dynamic", factor=2.5),
    "llama-yarn": scaled("yarn", factor=4.0, original_max_position_embeddings=16),
    "llama-yarn-mscale": scaled("yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=1.2, beta_slow=0.2,
                                mscale=0.9, mscale_all_dim=0.5, truncate=False),
    "llama-yarn-attention-factor": scaled("yarn", factor=2.0, original_max_position_embeddings=32, attention_factor=1.3),
    "llama-llama3": scaled("llama3", factor=8.0, original_max_position_embeddings=16, low_freq_factor=0.5,
                           high_freq_factor=4.0),
    "qwen3": (Qwen3Config, dict(GROUPED, tie_word_embeddings=True)),
    "qwen3-odd": (Qwen3Config, dict(ODD, head_dim=10)),
    "qwen3_moe": (Qwen3MoeConfig, dict(QWEN3_MOE, norm_topk_prob=True)),
    "qwen3_moe-mixed": (Qwen3MoeConfig, dict(QWEN3_MOE, num_hidden_layers=6, decoder_sparse_step=2, mlp_only_layers=[3])),
    "gpt2": (GPT2Config, GPT2),
    "gpt2-odd": (GPT2Config, dict(n_embd=60, n_layer=3, n_head=5, n_inner=37, vocab_size=131, layer_norm_epsilon=1e-3,
                                  activation_function="gelu_pytorch_tanh", tie_word_embeddings=False,
                                  scale_attn_by_inverse_layer_idx=True)),
    "olmo2": (Olmo2Config, dict(DENSE, num_key_value_heads=2, rope_parameters=dict(rope_type="default", rope_theta=5e5))),
    "olmo2-odd": (Olmo2Config, dict(ODD, tie_word_embeddings=True, rms_norm_eps=1e-3)),
    "olmo3": (Olmo3Config, dict(DENSE, num_hidden_layers=4, sliding_window=7, rope_parameters=dict(
        full_attention=dict(rope_type="yarn", rope_theta=500.0, factor=4.0, original_max_position_embeddings=16),
        sliding_attention=dict(rope_type="default", rope_theta=500.0)))),
    "olmo3-odd": (Olmo3Config, dict(ODD, sliding_window=1, layer_types=["full_attention", "sliding_attention", "full_attention"])),
    "qwen2": (Qwen2Config, dict(DENSE, num_key_value_heads=2, tie_word_embeddings=True)),
    "qwen2-window": (Qwen2Config, dict(ODD, use_sliding_window=True, sliding_window=9, max_window_layers=1)),
    "qwen3-window": (Qwen3Config, dict(GROUPED, use_sliding_window=True, sliding_window=5,
                                       layer_types=["sliding_attention", "full_attention"])),
    "qwen3_moe-window": (Qwen3MoeConfig, dict(QWEN3_MOE, use_sliding_window=True, sliding_window=33)),
    "mistral": (MistralConfig, dict(GROUPED, sliding_window=7)),
    "mistral-whole": (MistralConfig, dict(GROUPED, sliding_window=None)),
    "mixtral": (MixtralConfig, dict(GROUPED, num_local_experts=5, num_experts_per_tok=2, router_aux_loss_coef=0.05)),
    "mixtral-window": (MixtralConfig, dict(GROUPED, num_hidden_layers=1, sliding_window=12, num_local_experts=4,
                                           num_experts_per_tok=1, router_aux_loss_coef=0.05)),
    "starcoder2": (Starcoder2Config, dict(DENSE, num_key_value_heads=2)),
    "starcoder2-odd": (Starcoder2Config, dict(ODD, sliding_window=3, norm_epsilon=1e-3, tie_word_embeddings=False)),
    "gpt_neox": (GPTNeoXConfig, dict(NEOX)),
    "gpt_neox-odd": (GPTNeoXConfig, dict(hidden_size=60, num_hidden_layers=3, num_attention_heads=5, intermediate_size=37,
                                         vocab_size=131, rotary_pct=0.5, rotary_emb_base=500.0, layer_norm_eps=1e-3,
                                         tie_word_embeddings=True)),
    "gpt_neox-whole": (GPTNeoXConfig, dict(NEOX, num_hidden_layers=1, rotary_pct=1.0)),
    "gpt_neox-yarn": (GPTNeoXConfig, dict(NEOX, num_hidden_layers=1, rope_parameters=dict(
        rope_type="yarn", rope_theta=500.0, partial_rotary_factor=0.5, factor=4.0, original_max_position_embeddings=16))),
    "phi3": (Phi3Config, dict(DENSE, num_key_value_heads=2, sliding_window=6)),
    "phi3-longrope": (Phi3Config, dict(DENSE, original_max_position_embeddings=16, rope_parameters=dict(
        rope_type="longrope", rope_theta=500.0, partial_rotary_factor=0.75, short_factor=[1 + i / 9 for i in range(6)],
        long_factor=[1 + i * i / 3 for i in range(6)]))),
    "phi3-longrope-short": (Phi3Config, dict(ODD, original_max_position_embeddings=48, rope_parameters=dict(
        rope_type="longrope", rope_theta=500.0, partial_rotary_factor=1.0, short_factor=[1 + i / 9 for i in range(6)],
        long_factor=[7.0] * 6))),
    "phi3-partial": (Phi3Config, dict(ODD, rms_norm_eps=1e-3, rope_parameters=dict(rope_type="default", rope_theta=500.0,
                                                                                  partial_rotary_factor=0.5))),
    "qwen2_moe": (Qwen2MoeConfig, dict(SPARSE, num_key_value_heads=2, moe_intermediate_size=24, shared_expert_intermediate_size=40,
                                       norm_topk_prob=True)),
    "qwen2_moe-mixed": (Qwen2MoeConfig, dict(SPARSE, **ODD) | dict(num_experts=5, num_experts_per_tok=1, moe_intermediate_size=16,
                                             shared_expert_intermediate_size=48, mlp_only_layers=[1], use_sliding_window=True,
                                             sliding_window=9, max_window_layers=2)),
    "gemma2": (Gemma2Config, dict(GEMMA, sliding_window=7, attn_logit_softcapping=1.5, final_logit_softcapping=2.0)),
    "gemma2-odd": (Gemma2Config, dict(ODD, head_dim=10, query_pre_attn_scalar=5, attn_logit_softcapping=None, final_logit_softcapping=None,
                                      sliding_window=9, layer_types=["full_attention", "sliding_attention", "full_attention"])),
    "gemma3_text": (Gemma3TextConfig, dict(GEMMA, sliding_window=7, final_logit_softcapping=2.0,
                                           layer_types=["sliding_attention", "full_attention"], rope_parameters=dict(
        full_attention=dict(rope_type="linear", rope_theta=500.0, factor=8.0),
        sliding_attention=dict(rope_type="default", rope_theta=50.0)))),
    "gemma3_text-odd": (Gemma3TextConfig, dict(ODD, num_hidden_layers=7, head_dim=10, query_pre_attn_scalar=5, sliding_window=9,
                                               tie_word_embeddings=False)),
    "deepseek_v2": (DeepseekV2Config, dict(DENSE, **LATENTS) | dict(q_lora_rank=28, n_shared_experts=2, first_k_dense_replace=1,
                                           routed_scaling_factor=2.5)),
    "deepseek_v2-groups": (DeepseekV2Config, dict(ODD, **LATENTS) | dict(
        q_lora_rank=None, n_shared_experts=1, topk_method="group_limited_greedy", n_group=4, topk_group=2, v_head_dim=24,
        rms_norm_eps=1e-3, rope_parameters=dict(rope_type="yarn", rope_theta=500.0, factor=4.0, mscale=0.9, mscale_all_dim=0.6,
                                                original_max_position_embeddings=16))),
    "deepseek_v3": (DeepseekV3Config, dict(DENSE, **LATENTS) | dict(q_lora_rank=28, first_k_dense_replace=1, n_group=4, topk_group=2)),
    "deepseek_v3-one-group": (DeepseekV3Config, dict(ODD, **LATENTS) | dict(
        q_lora_rank=None, n_shared_experts=2, first_k_dense_replace=0, n_group=1, topk_group=1, norm_topk_prob=False,
        routed_scaling_factor=1.0)),
    "gpt_oss": (GptOssConfig, dict(GROUPED, num_local_experts=6, num_experts_per_tok=2, router_aux_loss_coef=0.05, sliding_window=7)),
    "gpt_oss-odd": (GptOssConfig, dict(ODD, head_dim=10, num_local_experts=5, num_experts_per_tok=3, router_aux_loss_coef=0.05,
                                       sliding_window=9, swiglu_alpha=1.2, swiglu_limit=0.5, rms_norm_eps=1e-3,
                                       layer_types=["full_attention", "sliding_attention", "full_attention"],
                                       rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    # The options of the families together, in as few layers as they need.
    "olmo-options": (OlmoConfig, dict(DENSE, num_hidden_layers=1, num_key_value_heads=2, tie_word_embeddings=True, clip_qkv=0.6)),
    "olmoe-options": (OlmoeConfig, dict(SPARSE, **ODD) | dict(num_hidden_layers=1, num_key_value_heads=1, num_experts=7,
                                                              num_experts_per_tok=3, rms_norm_eps=1e-3, tie_word_embeddings=True,
                                                              clip_qkv=1.2, norm_topk_prob=True)),
    "olmoe-one-layer-all-experts": (OlmoeConfig, dict(SPARSE, num_hidden_layers=1, num_experts=4, num_experts_per_tok=4)),
    "olmoe-one-layer-idle-experts": (OlmoeConfig, dict(SPARSE, num_hidden_layers=1, num_experts=16, num_experts_per_tok=1)),
    "olmoe-tiny": (OlmoeConfig, dict(SPARSE, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                                     intermediate_size=12, vocab_size=40, num_experts_per_tok=1, tie_word_embeddings=True)),
    "qwen3_moe-mixed-shorter": (Qwen3MoeConfig, dict(QWEN3_MOE, num_experts=5, num_hidden_layers=4, decoder_sparse_step=2,
                                                     mlp_only_layers=[3], norm_topk_prob=True)),
}
# A reference is computed nine times, so `make test` compares each family, option and kind of attention in few of these variants.
QUICK = {  # variant → whether attention stays in documents
    "olmo-odd": True, "olmo-options": False, "olmoe": False, "olmoe-options": True, "olmoe-one-layer-all-experts": True,
    "gpt2-odd": True, "llama-tied": False, "llama-linear": False, "llama-dynamic": True, "llama-yarn": False,
    "llama-yarn-mscale": False, "llama-yarn-attention-factor": False, "llama-llama3": False, "qwen3-odd": True,
    "qwen3_moe-mixed-shorter": True, "olmo2-odd": True, "olmo3": False, "qwen2-window": True, "qwen3-window": False, "mistral": True,
    "mixtral-window": True, "starcoder2-odd": True, "gpt_neox": True, "phi3": True, "phi3-longrope-short": False,
    "qwen2_moe-mixed": True, "gemma2": True, "gemma3_text": False, "deepseek_v2-groups": True, "deepseek_v3": True, "gpt_oss": False, "gpt_oss-odd": True}
COMPARED = [pytest.param(name, documents, id=f"{name}-{'documents' if documents else 'full'}",
                         marks=() if QUICK.get(name) is documents else pytest.mark.slow)
            for name in VARIANTS for documents in (False, True)]
# The optimizer sees tensors, not architectures.
STEPPED = ["olmoe-tiny", *(pytest.param(name, marks=pytest.mark.slow)
                           for name in ("olmo-tied", "olmo-clip", "olmoe", "olmoe-idle-experts", "llama-tied", "qwen3_moe"))]


def make_model(config_class, fields, seed):
    """Makes a random model whose scales, norms and router all matter: default weights leave it close to linear."""
    torch.manual_seed(seed)
    config = config_class(**fields, max_position_embeddings=64, initializer_range=0.1, pad_token_id=None, bos_token_id=None,
                          eos_token_id=EOS, attn_implementation="eager")
    config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "ln_" in name or name.endswith((".bias", "_bias", ".sinks")):
                parameter.add_(0.2 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.add_(0.2 * torch.randn_like(buffer))
    return model.eval()


def in_double(model):
    """Returns the same model in float64, with constants (rotary frequencies) made in float64."""
    with InDouble():
        torch.set_default_dtype(torch.float64)
        try:
            copy = type(model)(model.config)
        finally:
            torch.set_default_dtype(torch.float32)
        copy.double().load_state_dict(model.state_dict())
    assert all(tensor.dtype == torch.float64 for tensor in itertools.chain(copy.parameters(), copy.buffers()))
    return copy.eval()


def make_tokens(config, seed):
    tokens = torch.randint(1, config.vocab_size, (3, 41), generator=torch.Generator().manual_seed(seed))
    tokens[0, [6, 7, 30]] = EOS  # one document of a single token
    tokens[1, [0, 40]] = EOS     # at both ends
    return tokens                # the third row is one document


def document_mask(tokens, dtype, window=None):
    """Returns [B, 1, T, T]: 0 if a token may attend, far below everything otherwise. A document ends with its EOS."""
    ends = (tokens == EOS).long()
    document = ends.cumsum(1) - ends
    same = document[:, :, None] == document[:, None, :]
    allowed = same & torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
    if window is not None:
        allowed = allowed.triu(1 - window)
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, -1e30)[:, None]


def positions_in_documents(tokens):
    begins = torch.nn.functional.pad(tokens[:, :-1] == EOS, (1, 0), value=True)
    index = torch.arange(tokens.shape[1]).expand_as(tokens)
    return index - torch.where(begins, index, 0).cummax(1).values


def document_masks(config, tokens, dtype):
    """The masks of a model, by kinds of layers if its layers differ."""
    window = getattr(config, "sliding_window", None) or None  # 0 in Qwen2-MoE
    if len(set(getattr(config, "layer_types", None) or [])) < 2 and config.model_type != "olmo3":
        return document_mask(tokens, dtype, window)
    return {"full_attention": document_mask(tokens, dtype), "sliding_attention": document_mask(tokens, dtype, window)}


def in_halves(heads, turned):
    """Heads [H, dims, ...] in whose halves lie the halves of the first `turned` dims: with these, and zeros, all dims are turned."""
    half, first, second, rest = heads.shape[1] // 2, heads[:, :turned // 2], heads[:, turned // 2:turned], heads[:, turned:]
    kept = half - turned // 2
    return torch.cat([first, rest[:, :kept], second, rest[:, kept:]], 1)


def after_others(heads, turned):
    """Heads [H, dims, ...] with `turned` interleaved dims after the others, as in_halves has them."""
    others, last = heads[:, :heads.shape[1] - turned], heads[:, heads.shape[1] - turned:]
    return in_halves(torch.cat([last[:, 0::2], last[:, 1::2], others], 1), turned)


def latents(config, name, tensor):
    """Returns our names of a parameter that has to do with latents; nothing for others."""
    base, turned, heads = name.rsplit(".", 2)[0], config.qk_rope_head_dim, config.num_attention_heads
    if name.endswith(("q_proj.weight", "q_b_proj.weight")):
        return {name: after_others(tensor.unflatten(0, (heads, -1)), turned).flatten(0, 1)}
    if name.endswith("kv_a_proj_with_mqa.weight"):
        shared = after_others(tensor[config.kv_lora_rank:][None], turned)[0]
        return {f"{base}.kv_a_proj.weight": tensor[:config.kv_lora_rank], f"{base}.k_rope_proj.weight": shared}
    if name.endswith("kv_b_proj.weight"):
        parts = tensor.unflatten(0, (heads, -1)).split([config.qk_nope_head_dim, config.v_head_dim], 1)
        return {f"{base}.{part}_proj.weight": rows.flatten(0, 1) for part, rows in zip("kv", parts)}
    return {}


def logical(model, name, tensor):
    """Returns our names of a parameter of `transformers`, which has the gate and up projections of experts in one tensor."""
    if model.config.model_type == "mixtral" and ".mlp." in name:
        name = name.replace(".mlp.", ".block_sparse_moe.")
        if name.endswith("experts.gate_up_proj"):
            base = name.removesuffix("gate_up_proj")
            return {f"{base}{part}.weight": rows for part, rows in zip(("w1", "w3"), tensor.chunk(2, dim=1))}
        return {name.replace("down_proj", "w2.weight"): tensor}
    if hasattr(model.config, "kv_lora_rank") and (found := latents(model.config, name, tensor)):
        return found
    if model.config.model_type == "gpt_neox" and name == "lm_head.weight":
        return {"embed_out.weight": tensor}  # its name in files
    if ".query_key_value." in name:  # GPT-NeoX has query, key and value of each head
        heads = tensor.unflatten(0, (model.config.num_attention_heads, 3, -1))
        base, kind = name.split("query_key_value.")
        turned = int(heads.shape[2] * model.config.rope_parameters["partial_rotary_factor"])
        return {f"{base}{part}_proj.{kind}": (heads[:, i] if part == "v" else in_halves(heads[:, i], turned)).flatten(0, 1)
                for i, part in enumerate("qkv")}
    if name.endswith("qkv_proj.weight"):  # Phi-3
        heads, kv = model.config.num_attention_heads, model.config.num_key_value_heads
        width = tensor.shape[0] // (heads + 2 * kv)
        turned = int(width * model.config.rope_parameters["partial_rotary_factor"])
        q, k, v = (part.unflatten(0, (-1, width)) for part in tensor.split([heads * width, kv * width, kv * width]))
        base = name.removesuffix("qkv_proj.weight")
        return {f"{base}{part}_proj.weight": each.flatten(0, 1)
                for part, each in (("q", in_halves(q, turned)), ("k", in_halves(k, turned)), ("v", v))}
    if name.endswith("mlp.gate_up_proj.weight"):
        gate, up = tensor.chunk(2)
        base = name.removesuffix("gate_up_proj.weight")
        return {f"{base}gate_proj.weight": gate, f"{base}up_proj.weight": up}
    if model.config.model_type == "gpt_oss" and ".experts." in name:  # as [experts, in, out], gate and up in turns
        base, kind = name.removesuffix("_bias"), "bias" if name.endswith("_bias") else "weight"
        base, values = base.rsplit(".", 1)[0], tensor if kind == "bias" else tensor.transpose(1, 2)
        if "down" in name:
            return {f"{base}.down_proj.{kind}": values}
        return {f"{base}.gate_proj.{kind}": values[:, 0::2], f"{base}.up_proj.{kind}": values[:, 1::2]}
    if name.endswith("experts.gate_up_proj"):
        gate, up = tensor.chunk(2, dim=1)
        base = name.removesuffix("gate_up_proj")
        return {f"{base}gate_proj.weight": gate, f"{base}up_proj.weight": up}
    if name.endswith("experts.down_proj"):
        return {f"{name}.weight": tensor}
    if name.startswith("transformer.h.") and ".ln_" not in name:  # GPT-2 has its matrices as [in, out], and q, k and v in one
        base, kind = name.rsplit(".", 1)
        base, layer = base.removesuffix("c_attn"), tensor.t() if kind == "weight" else tensor
        if base.endswith("."):
            return {f"{base}{part}_proj.{kind}": rows for part, rows in zip("qkv", layer.chunk(3))}
        return {name: layer}
    return {name: tensor}


def group_scores(config, scores):
    """The scores of groups of experts: of sigmoids those of two experts, otherwise that of one."""
    by_group = scores.unflatten(-1, (config.n_group, -1))
    return by_group.topk(2, -1).values.sum(-1) if config.model_type == "deepseek_v3" else by_group.amax(-1)


def in_groups(config, scores):
    """The scores by which experts are chosen: where they lie in groups, those of groups that a token does not take are far below."""
    if not getattr(config, "n_group", None):
        return scores
    taken = group_scores(config, scores).topk(config.topk_group, -1).indices
    left_out = torch.ones(*scores.shape[:-1], config.n_group, dtype=torch.bool).scatter(-1, taken, False)
    return scores.unflatten(-1, (config.n_group, -1)).masked_fill(left_out[..., None], -1e9).flatten(-2)


def router_scores(model, router_logits):
    """Returns for each layer the scores, and those by which experts are chosen."""
    if model.config.model_type != "deepseek_v3":
        return [(scores, scores) for scores in (logits.softmax(-1) for logits in router_logits)]
    gates = [layer.mlp.gate for layer in model.base_model.layers if hasattr(layer.mlp, "gate")]
    return [(logits.sigmoid(), logits.sigmoid() + gate.e_score_correction_bias) for logits, gate in zip(router_logits, gates)]


def balancing_loss(model, router_logits):
    config = model.config
    if not getattr(config, "n_group", None):
        return load_balancing_loss_func(router_logits, config.num_experts, config.num_experts_per_tok)
    probs, choosing = (torch.cat(each) for each in zip(*router_scores(model, router_logits)))
    probs = probs / probs.sum(-1, keepdim=True)
    chosen = in_groups(config, choosing.detach()).topk(config.num_experts_per_tok, -1).indices
    num_experts = probs.shape[-1]
    share = torch.nn.functional.one_hot(chosen, num_experts).to(probs.dtype).mean(0).sum(0)
    return num_experts * (share * probs.mean(0)).sum()


def forward(model, tokens, documents):
    """Returns (logits, loss, aux_loss or None, router logits)."""
    is_sparse = hasattr(model.config, "num_experts") or hasattr(model.config, "n_routed_experts")
    dtype = model.lm_head.weight.dtype
    mask = document_masks(model.config, tokens, dtype) if documents else None
    extra = dict(output_router_logits=True) if is_sparse else {}
    if documents and model.config.model_type == "gpt2":  # learned positions begin in each document; rotary ones are relative
        extra = dict(position_ids=positions_in_documents(tokens))
    out = model.base_model(input_ids=tokens, attention_mask=mask, use_cache=False, **extra)
    logits = model.lm_head(out.last_hidden_state)
    cap = getattr(model.config, "final_logit_softcapping", None)
    logits = cap * torch.tanh(logits / cap) if cap else logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    aux_loss = None
    if is_sparse:
        aux_loss = balancing_loss(model, out.router_logits)
    return logits, loss, aux_loss, out.router_logits if is_sparse else ()


def losses_and_gradients(model, tokens, documents):
    model.zero_grad()
    logits, loss, aux_loss, _ = forward(model, tokens, documents)
    total = loss if aux_loss is None else loss + model.config.router_aux_loss_coef * aux_loss
    total.backward()
    out = {"logits": logits.detach(), "loss": loss.detach()}
    if aux_loss is not None:
        out["aux_loss"] = aux_loss.detach()
    for name, parameter in model.named_parameters():
        for ours, part in logical(model, name, parameter.grad).items():
            out[f"grad.{ours}"] = part.clone()
    return out


def after_steps(model, tokens, steps, lr):
    """Returns parameters after `steps` of AdamW; the model does not change."""
    saved = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, foreach=False)
    for _ in range(steps):
        losses_and_gradients(model, tokens, documents=False)
        optimizer.step()
    out = {}
    for name, parameter in model.named_parameters():
        for ours, part in logical(model, name, parameter.detach()).items():
            out[f"param.{ours}"] = part.clone()
    model.load_state_dict(saved)
    return out


def disturb_rotation(model):
    """Rotary frequencies are constants of the model: they have float32's error too, two roundings of a power."""
    if not hasattr(model.base_model, "rotary_emb"):
        return lambda seed: None
    rotary = model.base_model.rotary_emb
    chosen_in_forward = hasattr(rotary, "long_inv_freq")  # from these two, by the length
    buffers = [buffer for name, buffer in rotary.named_buffers()
               if name.endswith("inv_freq") and ("original" in name) == chosen_in_forward]
    buffers += [rotary.long_inv_freq] if chosen_in_forward else []

    def disturb(seed):
        generator, originals = torch.Generator().manual_seed(seed), [buffer.clone() for buffer in buffers]
        for buffer in buffers:
            buffer.mul_(1 + 2**-23 * torch.randn(buffer.shape, generator=generator, dtype=buffer.dtype))
        return lambda: [buffer.copy_(original) for buffer, original in zip(buffers, originals)]

    return disturb


def smallest_margin(model, tokens, documents):
    """Returns how far the model is from a jump: between the last chosen expert and the next, and of any clipped value.

    Next to a jump two correct results differ by more than rounding, so such seeds are passed over.
    """
    margins, handles = [], []
    clip = getattr(model.config, "clip_qkv", None)
    if clip is not None:
        for layer in model.base_model.layers:
            attention = layer.self_attn
            for module in (getattr(attention, "q_norm", attention.q_proj), getattr(attention, "k_norm", attention.k_proj),
                           attention.v_proj):
                handles.append(module.register_forward_hook(
                    lambda _, __, out: margins.append(float((out.abs() - clip).abs().min()) * 10) or None))
    clamps = [layer.mlp.experts for layer in model.base_model.layers] if model.config.model_type == "gpt_oss" else []
    for experts in clamps:
        def watched(gate_up, experts=experts):
            margins.append(float(min((gate_up.abs() - experts.limit).abs().min(), 1.0)) * 10)
            return type(experts)._apply_gate(experts, gate_up)
        experts._apply_gate = watched
    with torch.no_grad(), InDouble():
        routers = forward(model, tokens, documents)[3]
    for handle in handles:
        handle.remove()
    for experts in clamps:
        del experts._apply_gate
    config, k = model.config, getattr(model.config, "num_experts_per_tok", 0)
    for scores, choosing in router_scores(model, routers):
        if k < scores.shape[-1]:
            if getattr(config, "n_group", None):
                best = torch.nn.functional.pad(group_scores(config, choosing), (0, 1), value=-1e9).topk(config.topk_group + 1, dim=-1).values
                margins.append(float((best[:, -2] - best[:, -1]).min()))
            best = in_groups(config, choosing).topk(k + 1, dim=-1).values
            margins.append(float((best[:, -2] - best[:, -1]).min()))
    return min(margins, default=1.0)


class Case:
    """A variant, far enough from every jump, saved as `transformers` saves it."""

    def __init__(self, name, folder):
        config_class, fields = VARIANTS[name]
        for seed in range(1, 200):
            model = make_model(config_class, fields, seed)
            self.double, self.tokens = in_double(model), make_tokens(model.config, seed)
            if min(smallest_margin(self.double, self.tokens, documents) for documents in (False, True)) > 1e-4:
                break
        else:
            pytest.fail(f"no seed keeps {name} away from its jumps")
        self.model, self.folder, self.references = model, folder, {}
        model.save_pretrained(folder)
        save_file({"tokens": self.tokens}, folder / "input.safetensors")

    def ours(self, program, *options):
        program.run(self.folder, self.folder / "input.safetensors", self.folder / "output.safetensors", *options)
        return load_file(self.folder / "output.safetensors")


@pytest.fixture(scope="module")
def make_case(tmp_path_factory):
    made = {}

    def make(name):
        if name not in made:
            made[name] = Case(name, tmp_path_factory.mktemp(name))
        return made[name]

    return make


def gradient_reference(case, documents):
    """The same for every test of a case, so it is computed once."""
    if documents not in case.references:
        case.references[documents] = Reference(lambda: losses_and_gradients(case.double, case.tokens, documents), disturb_rotation(case.double))
    return case.references[documents]


def assert_equal_up_to_rounding(reference, ours, theirs):
    assert not (lines := reference.failures(theirs)), "the bound is too tight for transformers itself:\n" + "\n".join(lines)
    assert not (lines := reference.failures(ours)), "\n".join(lines)


def note_worst(family, reference, ours, theirs):
    """Adds a line to the file that ATHANOR_PARITY_TABLE names, for parity_table.py."""
    if not (path := os.environ.get("ATHANOR_PARITY_TABLE")):
        return
    line = {"family": family}
    for side, tensors in (("ours", ours), ("theirs", theirs)):
        share = {name: reference.share_of_bound(name, tensors[name]) for name in reference.values}
        name = max(share, key=share.get)
        logits = reference.values["logits"]
        line[side] = {"name": name, "share": share[name],
                      "logits": float((tensors["logits"].double() - logits).abs().max() / logits.abs().max()),
                      "loss": float((tensors["loss"].double() - reference.values["loss"]).abs() / reference.values["loss"].abs())}
    with open(path, "a") as file:
        file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("variant,documents", COMPARED)
def test_logits_losses_and_every_gradient_equal_those_of_transformers(variant, documents, make_case, athanor_parity):
    case = make_case(variant)
    reference = gradient_reference(case, documents)
    theirs = losses_and_gradients(case.model, case.tokens, documents)
    ours = case.ours(athanor_parity, *(["--document-attention", EOS] if documents else []))
    assert_equal_up_to_rounding(reference, ours, theirs)
    note_worst(case.model.config.model_type, reference, ours, theirs)
    assert set(ours) == set(reference.values), "tensors nobody asked for"
    for name, value in reference.values.items():
        if ".experts." in name:  # an expert that no token chose has gradients of exactly zero
            idle = value.flatten(1).eq(0).all(1)
            assert not ours[name][idle].any(), f"{name}: experts without tokens have gradients"


@pytest.mark.parametrize("variant", STEPPED)
def test_three_steps_of_adamw_equal_those_of_torch(variant, make_case, athanor_parity):
    case, steps, lr = make_case(variant), 3, 1e-3
    reference = Reference(lambda: after_steps(case.double, case.tokens, steps, lr), disturb_rotation(case.double))
    theirs = after_steps(case.model, case.tokens, steps, lr)
    assert_equal_up_to_rounding(reference, case.ours(athanor_parity, "--steps", steps, "--lr", lr), theirs)


@pytest.mark.parametrize("variant,field", [
    ("llama-linear", "factor"), ("llama-yarn", "factor"), ("llama-yarn", "original_max_position_embeddings"),
    ("llama-yarn-mscale", "beta_fast"), ("llama-yarn-mscale", "mscale"), ("llama-yarn-attention-factor", "attention_factor"),
    ("llama-llama3", "high_freq_factor"), ("llama-llama3", "low_freq_factor"),
])
def test_every_field_of_a_scaling_counts(variant, field, make_case):
    """The scaled models above are extreme enough that each of their fields matters."""
    case = make_case(variant)
    reference = gradient_reference(case, documents=False)
    config_class, fields = VARIANTS[variant]
    rope = dict(fields["rope_parameters"])
    rope[field] *= 2 if isinstance(rope[field], int) else 1.01
    wrong = make_model(config_class, dict(fields, rope_parameters=rope), seed=1)
    wrong.load_state_dict(case.model.state_dict())
    assert any(line.startswith("logits: ") for line in reference.failures(losses_and_gradients(wrong, case.tokens, False)))


@pytest.mark.parametrize("mistake,first", [
    ("rope_theta", "logits"), ("rms_norm_eps", "logits"), ("router_aux_loss_coef", "grad.model.layers.0.mlp.gate.weight"),
    ("one element", "grad.lm_head.weight"),
])
def test_the_bound_notices_a_small_mistake(mistake, first, make_case):
    """A bound that nothing exceeds would prove nothing: each change below is far smaller than a bug."""
    case = make_case("olmoe")
    reference = gradient_reference(case, documents=False)
    config, model = case.model.config, case.model
    fields = dict(VARIANTS["olmoe"][1])
    if mistake == "rope_theta":
        fields[mistake] = 10010.0
    elif mistake == "rms_norm_eps":
        fields[mistake] = 1.1e-5
    elif mistake == "router_aux_loss_coef":
        fields[mistake] = config.router_aux_loss_coef * 1.002
    wrong = make_model(OlmoeConfig, fields, seed=1)
    wrong.load_state_dict(model.state_dict())
    tensors = losses_and_gradients(wrong, case.tokens, documents=False)
    if mistake == "one element":
        tensors[first].view(-1)[5] += 1e-5 * tensors[first].abs().max()
    assert any(line.startswith(f"{first}: ") for line in reference.failures(tensors)), f"{mistake} goes unnoticed in {first}"
