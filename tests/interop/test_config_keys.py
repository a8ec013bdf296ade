"""Every member of every family's config.json: equal, mapped, kept, told or refused, and nothing that loads computes other logits.

The members are those of the config classes of `transformers`, in the version that requirements.txt pins. Each is given another value
than the class has by default, and `checkpoint_tool configs` tells what our reader makes of it:

    mapped   the model is another one
    kept     the model is the same, and what is written back is not
    told     the model is the same, and a warning names the member
    refused  the error names the member
    equal    nothing changes

For members that are kept, told or equal, the class computes the logits of one set of weights with both values: they must have the same
bits. config_keys.md is the table. A newer version with further members fails here, by name;
`ATHANOR_WRITE_KEYS=1 .venv/bin/pytest tests/interop/test_config_keys.py` writes the table again.
"""
import json
import os
import pathlib
import subprocess

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

PAGE = pathlib.Path(__file__).with_name("config_keys.md")
FAMILIES = ["olmo", "olmo2", "olmo3", "olmoe", "llama", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mistral", "mixtral", "starcoder2",
            "gpt2", "gpt_neox", "phi3", "gemma2", "gemma3_text", "deepseek_v2", "deepseek_v3", "gpt_oss"]
SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, intermediate_size=48, vocab_size=64, max_position_embeddings=64,
             eos_token_id=1, bos_token_id=2, pad_token_id=3)
OF_FAMILY = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 48, "n_positions": 64},
    "olmoe": {"num_experts": 6, "num_experts_per_tok": 2},
    "mixtral": {"num_local_experts": 6, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "qwen2_moe": {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20},
    "deepseek_v2": {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "q_lora_rank": 12, "kv_lora_rank": 10,
                    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_group": 3, "topk_group": 2,
                    "topk_method": "group_limited_greedy"},
    "deepseek_v3": {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "q_lora_rank": 12, "kv_lora_rank": 10,
                    "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_group": 3, "topk_group": 2,
                    "first_k_dense_replace": 0},
    "gpt_oss": {"head_dim": 8, "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 5},
    "gemma2": {"head_dim": 8}, "gemma3_text": {"head_dim": 8}, "qwen3": {"head_dim": 8}, "phi3": {"original_max_position_embeddings": 64},
}
OTHER = {  # where adding to the default would be no value of the member
    "num_attention_heads": 2, "num_key_value_heads": 2, "n_head": 2, "hidden_size": 64, "n_embd": 64, "sliding_window": 3, "head_dim": 12,
    "max_window_layers": 1, "mlp_only_layers": [0], "num_experts_per_tok": 1, "decoder_sparse_step": 2, "clip_qkv": 0.5,
    "vocab_size": 128, "max_position_embeddings": 128, "n_positions": 128, "query_pre_attn_scalar": 5, "dtype": "bfloat16",
    "attn_logit_softcapping": 2.0, "final_logit_softcapping": 2.0, "problem_type": "regression", "label2id": {"x": 0}, "id2label": {"0": "x"},
    "architectures": ["Other"], "n_inner": 40, "_name_or_path": "elsewhere", "transformers_version": "4.0.0", "hidden_act": "relu",
    "hidden_activation": "relu", "activation_function": "relu", "summary_activation": "tanh", "summary_type": "last",
    "n_routed_experts": 12, "n_group": 2, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "topk_method": "greedy",
    "layer_types": None, "rotary_pct": 0.5, "partial_rotary_factor": 0.5,
}
# Another model_type is another family; return_dict is about the class's results, and false ends some classes with an error; dtype is
# the type in which a model is made, and the weights have theirs.
SKIPPED = {"model_type", "return_dict", "dtype"}


def base_of(family):
    fields = dict(dict(vocab_size=64, eos_token_id=1, bos_token_id=2, pad_token_id=3) if family == "gpt2" else SMALL) | OF_FAMILY.get(family, {})
    if family == "gpt_neox":
        del fields["num_key_value_heads"]
    config = AutoConfig.for_model(family, **fields)
    return json.loads(config.to_json_string(use_diff=False)), type(config)


def other_value(key, value, base):
    if key == "rope_parameters":
        if "full_attention" in value:
            return {kind: rope | {"rope_theta": 77.0} for kind, rope in value.items()}
        return value | {"rope_theta": 77.0}
    if key == "layer_types":
        return ["sliding_attention" if kind == "full_attention" else "full_attention" for kind in value]
    if key in OTHER:
        return OTHER[key]
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1 if isinstance(value, int) else value / 2 + 0.25
    return True if value is None else None


def changes(key, base):
    """What a member with another value looks like: it, and what must agree with it."""
    value = other_value(key, base[key], base)
    if key == "num_hidden_layers" and "layer_types" in base:
        return {key: value, "layer_types": base["layer_types"] + base["layer_types"][:1]}
    if key == "use_sliding_window":
        kinds = {"layer_types": ["sliding_attention", "full_attention"]} if "layer_types" in base else {}
        return {key: value, "sliding_window": 9} | kinds
    return {key: value}


def outcome(before, after, key):
    if "refused" in after:
        assert key in after["refused"] or key.removeprefix("n_") in after["refused"], (key, after)
        return "refused"
    if before["model"] != after["model"]:
        return "mapped"
    if before["kept"] != after["kept"]:
        return "kept"
    named = [member.split(" = ")[0] for member in after.get("told") or [] if member not in (before.get("told") or [])]
    return "told" if key in named else "equal"


def logits_of(config_class, fields, weights):
    config = config_class.from_dict(dict(fields))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").to(torch.float32).eval()
    if weights is not None:
        model.load_state_dict(weights)  # the same tensors, or an error
    tokens = torch.randint(4, 60, (2, 24), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        out = model(input_ids=tokens, use_cache=False)
    return out.logits, model.state_dict()


@pytest.fixture(scope="module")
def answers(athanor):
    """What our reader makes of each family's members: {family: {key: (changed members, outcome)}}."""
    tool, cases = athanor.path.with_name("checkpoint_tool"), []
    for family in FAMILIES:
        base, _ = base_of(family)
        cases.append((family, None, base, {}))
        for key in sorted(set(base) - SKIPPED):
            cases.append((family, key, base, changes(key, base)))
    lines = "".join(json.dumps(base | changed) + "\n" for _, _, base, changed in cases)
    done = subprocess.run([tool, "configs"], input=lines, capture_output=True, text=True, check=True)
    found, before = {}, None
    for (family, key, _, changed), line in zip(cases, done.stdout.splitlines(), strict=True):
        answer = json.loads(line)
        if key is None:
            assert "refused" not in answer, (family, answer)
            before = answer
            continue
        found.setdefault(family, {})[key] = (changed, outcome(before, answer, key))
    return found


def test_the_table_of_keys_is_that_of_the_pinned_version(answers):
    keys = sorted({key for members in answers.values() for key in members})
    lines = ["# Members of config.json", "", __doc__.split("\n\n")[1].replace("\n", " "), "",
             "`mapped`: the model is another one; `kept`: written back; `told`: a warning names it; `refused`; `equal`: nothing changes.", "",
             f"| member | {' | '.join(FAMILIES)} |", "|" + " --- |" * (len(FAMILIES) + 1)]
    for key in keys:
        lines.append(f"| {key} | {' | '.join(answers[family].get(key, (None, '–'))[1] for family in FAMILIES)} |")
    page = "\n".join(lines) + "\n"
    if os.environ.get("ATHANOR_WRITE_KEYS"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page


@pytest.mark.parametrize("family", FAMILIES)
def test_what_loads_has_the_logits_of_transformers_whatever_the_value(answers, family):
    base, config_class = base_of(family)
    torch.manual_seed(3)
    expected, weights = logits_of(config_class, base, None)
    assert torch.equal(logits_of(config_class, base, weights)[0], expected)
    for key, (changed, kind) in answers[family].items():
        if kind in ("kept", "told", "equal"):
            logits = logits_of(config_class, base | changed, weights)[0]
            # With this one the class multiplies by the scale within the product: another rounding of each score.
            if key == "reorder_and_upcast_attn":
                assert (logits - expected).abs().max() <= 64 * 2**-24 * expected.abs().max()
            else:
                assert torch.equal(logits, expected), (changed, kind)
