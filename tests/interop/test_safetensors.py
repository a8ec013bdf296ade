"""The `safetensors` and `transformers` libraries read what we write identically, and we read what they write."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
ATHANOR = Path(os.environ.get("ATHANOR_BIN", ROOT / "build" / "athanor"))
TOOL = Path(os.environ.get("ATHANOR_CHECKPOINT_TOOL", ATHANOR.parent / "checkpoint_tool"))
SHARED = Path(os.environ.get("ATHANOR_SHARED", ROOT.parent / "shared"))
TOKENIZERS = SHARED / "data" / "tokenizers"

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built; set ATHANOR_CHECKPOINT_TOOL")
needs_tokenizers = pytest.mark.skipif(
    not TOKENIZERS.is_dir(), reason=f"no tokenizers in {TOKENIZERS}; set ATHANOR_SHARED"
)


def tool(*arguments, code=0):
    """Returns the output of checkpoint_tool; with another `code`, the line in which it refuses."""
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stdout if code == 0 else done.stderr


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def assert_equal(a, b):
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        assert tensor.dtype == b[name].dtype and tensor.shape == b[name].shape, name
        assert bits(tensor) == bits(b[name]), name


def odd_tensors():
    torch.manual_seed(0)
    return {
        "f32": torch.randn(3, 5, 7),
        "nan": torch.tensor([float("nan"), -0.0, float("inf"), 1e-42]),
        "bf16": torch.randn(11).to(torch.bfloat16),
        "f16": torch.randn(2, 3).to(torch.float16),
        "f64": torch.randn(3, dtype=torch.float64),
        "i64": torch.tensor([-(2**62), 5]),
        "u8": torch.arange(5, dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "naïve ␤ \"quoted\"\n": torch.ones(1),
    }


def test_every_dtype_survives_our_reader_and_writer(tmp_path):
    theirs = odd_tensors()
    save_file(theirs, tmp_path / "theirs.safetensors", metadata={"format": "pt", "who": "naïve\n\"x\""})
    tool("copy", tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors")
    assert_equal(theirs, load_file(tmp_path / "ours.safetensors"))
    with safe_open(tmp_path / "ours.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "who": "naïve\n\"x\""}
    listed = json.loads(tool("list", tmp_path / "theirs.safetensors"))["tensors"]
    assert {name: entry["shape"] for name, entry in listed.items()} == {k: list(v.shape) for k, v in theirs.items()}


def test_a_file_without_tensors_is_read_by_both(tmp_path):
    save_file({}, tmp_path / "theirs.safetensors")
    tool("copy", tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors")
    assert load_file(tmp_path / "ours.safetensors") == {}


def test_what_the_library_refuses_we_refuse(tmp_path):
    """Damaged headers and lengths: whenever safetensors refuses a file, so do we, in one line with exit code 2."""
    save_file({"a": torch.ones(4), "b": torch.zeros(2, 3)}, tmp_path / "good.safetensors")
    good = (tmp_path / "good.safetensors").read_bytes()
    random = np.random.default_rng(0)
    damaged = [good[:n] for n in range(0, len(good), 7)] + [good + b"x"]
    for _ in range(150):
        changed = bytearray(good)
        for _ in range(random.integers(1, 4)):
            changed[random.integers(0, len(good) - 40)] = random.integers(0, 256)
        damaged.append(bytes(changed))
    refused = 0
    for i, data in enumerate(damaged):
        path = tmp_path / "bad.safetensors"
        path.write_bytes(data)
        try:
            with safe_open(path, "pt") as file:
                file.keys()
        except (SafetensorError, UnicodeDecodeError):
            line = tool("list", path, code=2)
            assert line.count("\n") == 1 and "bad.safetensors" in line, (i, line)
            refused += 1
    assert refused > 100


def random_model(family, **options):
    transformers = pytest.importorskip("transformers")
    common = dict(vocab_size=96, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, pad_token_id=None, eos_token_id=0, max_position_embeddings=64)
    torch.manual_seed(1)
    if family == "olmo":
        return transformers.OlmoForCausalLM(transformers.OlmoConfig(**common, **options))
    return transformers.OlmoeForCausalLM(
        transformers.OlmoeConfig(num_experts=6, num_experts_per_tok=3, **common, **options))


MODELS = {
    "olmo": ("olmo", {}),
    "olmo tied, clipped, another theta": (
        "olmo",
        dict(tie_word_embeddings=True, clip_qkv=0.5, rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
    ),
    "olmoe": ("olmoe", {}),
    "olmoe renormalised, tied": ("olmoe", dict(norm_topk_prob=True, tie_word_embeddings=True, rms_norm_eps=1e-6)),
}


@pytest.mark.parametrize("family, options", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("shard", ["500GB", "8KB"])
def test_a_transformers_model_survives_import_and_export(tmp_path, family, options, shard):
    from transformers import AutoModelForCausalLM

    model = random_model(family, **options).eval()
    model.save_pretrained(tmp_path / "theirs", max_shard_size=shard)
    tool("copy-hf", tmp_path / "theirs", tmp_path / "ours", "float32", 10**12 if shard == "500GB" else 8000)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype="auto").eval()
    assert again.dtype == torch.float32
    assert_equal(dict(model.state_dict()), dict(again.state_dict()))
    tokens = torch.arange(40).reshape(2, 20) % 96
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, again(tokens).logits)
    assert again.config.rope_parameters == model.config.rope_parameters
    assert again.generation_config.eos_token_id == 0


@pytest.mark.parametrize("family", ["olmo", "olmoe"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_widened_and_rounded_as_torch_does(tmp_path, family, dtype):
    from transformers import AutoModelForCausalLM

    random_model(family).to(dtype).save_pretrained(tmp_path / "theirs")
    tool("copy-hf", tmp_path / "theirs", tmp_path / "ours", "float32", 10**12)
    tool("copy-hf", tmp_path / "ours", tmp_path / "rounded", "bfloat16", 10**12)
    wide = {k: v.float() for k, v in load_file(tmp_path / "theirs" / "model.safetensors").items()}
    assert_equal(wide, load_file(tmp_path / "ours" / "model.safetensors"))
    rounded = {k: v.to(torch.bfloat16) for k, v in wide.items()}
    assert_equal(rounded, load_file(tmp_path / "rounded" / "model.safetensors"))
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "rounded", dtype="auto").dtype == torch.bfloat16


def test_fused_experts_are_read(tmp_path):
    from transformers import AutoModelForCausalLM

    model = random_model("olmoe")
    model.save_pretrained(tmp_path / "theirs", save_original_format=False)
    names = load_file(tmp_path / "theirs" / "model.safetensors").keys()
    assert any(name.endswith("experts.gate_up_proj") for name in names), "transformers no longer writes the fused form"
    tool("copy-hf", tmp_path / "theirs", tmp_path / "ours", "float32", 10**12)
    assert_equal(dict(model.state_dict()), dict(AutoModelForCausalLM.from_pretrained(tmp_path / "ours").state_dict()))


def test_a_model_with_options_of_another_kind_is_refused_by_name(tmp_path):
    random_model("olmo", attention_bias=True).save_pretrained(tmp_path / "bias")
    assert "attention_bias" in tool("copy-hf", tmp_path / "bias", tmp_path / "out", "float32", 1000, code=2)
    random_model("olmo").save_pretrained(tmp_path / "rope")
    config = json.loads((tmp_path / "rope" / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "proportional", "rope_theta": 1e4}
    (tmp_path / "rope" / "config.json").write_text(json.dumps(config))
    assert "proportional" in tool("copy-hf", tmp_path / "rope", tmp_path / "out", "float32", 1000, code=2)
    assert not (tmp_path / "out").exists()


@needs_tokenizers
@pytest.mark.parametrize("name", ["allenai_gpt-neox-olmo-dolma-v1_5", "allenai_eleuther-ai-gpt-neox-20b-pii-special"])
def test_auto_tokenizer_opens_what_is_exported(tmp_path, name):
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    source = TOKENIZERS / f"{name}.json"
    (tmp_path / "tokenizer.json").write_bytes(source.read_bytes())  # alone: without its tokenizer_config.json
    plain = Tokenizer.from_file(str(source))
    eos = plain.token_to_id("<|endoftext|>")
    model = random_model("olmo")
    model.resize_token_embeddings(plain.get_vocab_size())
    model.config.eos_token_id = eos
    model.save_pretrained(tmp_path / "theirs")
    tool("copy-hf", tmp_path / "theirs", tmp_path / "ours", "bfloat16", 10**12, tmp_path / "tokenizer.json")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    text = "A furnace that feeds itself: 3.14159 naïve  spaces\n\tand 日本語."
    assert tokenizer(text, add_special_tokens=False).input_ids == plain.encode(text, add_special_tokens=False).ids
    assert tokenizer.eos_token == "<|endoftext|>" and tokenizer.eos_token_id == eos
    assert tokenizer.decode(plain.encode(text).ids) == text
