"""A model folder of any size is imported and exported with the same memory, and every bit is preserved."""
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

CONFIG = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=1024, intermediate_size=4096, num_hidden_layers=12,
              num_attention_heads=16, num_key_value_heads=4, vocab_size=32000, max_position_embeddings=2048, rms_norm_eps=1e-5,
              rope_theta=10000.0, bos_token_id=None, eos_token_id=0, tie_word_embeddings=False)


def shapes(config):
    """Returns name → shape, in the order of the forward pass."""
    d, f, kv = config["hidden_size"], config["intermediate_size"], config["hidden_size"] // 4
    yield "model.embed_tokens.weight", (config["vocab_size"], d)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (d,)
        yield prefix + "post_attention_layernorm.weight", (d,)
        for name, shape in [("self_attn.q_proj", (d, d)), ("self_attn.k_proj", (kv, d)), ("self_attn.v_proj", (kv, d)),
                            ("self_attn.o_proj", (d, d)), ("mlp.gate_proj", (f, d)), ("mlp.up_proj", (f, d)),
                            ("mlp.down_proj", (d, f))]:
            yield f"{prefix}{name}.weight", shape
    yield "model.norm.weight", (d,)
    yield "lm_head.weight", (config["vocab_size"], d)


def make_folder(folder, config, num_files):
    """Writes random bf16 weights into several files with an index; returns how many bytes they have."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    block = torch.randn(1 << 20, generator=torch.Generator().manual_seed(1)).bfloat16()
    names, weight_map, total = list(shapes(config)), {}, 0
    for i in range(num_files):
        tensors = {}
        for position, (name, shape) in enumerate(names):
            if position * num_files // len(names) != i:
                continue
            count = torch.Size(shape).numel()
            tensors[name] = block.roll(position).repeat(-(-count // block.numel()))[:count].view(shape)
            weight_map[name] = f"model-{i + 1:05}-of-{num_files:05}.safetensors"
            total += 2 * count
        save_file(tensors, folder / f"model-{i + 1:05}-of-{num_files:05}.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    return total


@pytest.mark.parametrize("changes,shard_megabytes", [
    (dict(num_hidden_layers=3, vocab_size=12000), 40),
    pytest.param({}, 150, marks=pytest.mark.slow),
], ids=["136 MB", "450 MB"])
def test_memory_does_not_grow_with_the_model_and_every_bit_comes_through(athanor, tmp_path, changes, shard_megabytes):
    small = dict(CONFIG, hidden_size=64, intermediate_size=64, num_hidden_layers=1, vocab_size=256)
    make_folder(tmp_path / "small", small, 1)
    large_bytes = make_folder(tmp_path / "large", CONFIG | changes, 3)
    assert large_bytes > 120 << 20  # twice what memory may grow by
    peaks = {}
    for name in ("small", "large"):
        peaks[name] = [athanor.measure("import", tmp_path / name, "--out", tmp_path / f"{name}-run")[1],
                       athanor.measure("export", tmp_path / f"{name}-run", "--out", tmp_path / f"{name}-back", "--dtype", "bf16",
                                       "--max-shard-size", f"{shard_megabytes}MB")[1]]
    for small_peak, large_peak in zip(peaks["small"], peaks["large"]):
        assert large_peak - small_peak < 64 << 20, f"{peaks}: of {large_bytes} bytes, too many were in memory"

    index = json.loads((tmp_path / "large-back" / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in (tmp_path / "large-back").glob("*.safetensors"))
    assert set(index["weight_map"].values()) == set(files) and len(files) >= 4
    assert all((tmp_path / "large-back" / name).stat().st_size < (shard_megabytes + 1) * 1e6 for name in files)
    assert index["metadata"]["total_size"] == large_bytes
    before = json.loads((tmp_path / "large" / "model.safetensors.index.json").read_text())["weight_map"]
    assert before.keys() == index["weight_map"].keys()
    for name, file in before.items():
        with safe_open(tmp_path / "large" / file, "pt") as theirs, safe_open(tmp_path / "large-back" / index["weight_map"][name], "pt") as ours:
            assert torch.equal(theirs.get_tensor(name), ours.get_tensor(name)), name


@pytest.mark.parametrize("size", ["0", "-5GB", "many"])
def test_a_shard_size_that_is_none_is_refused(athanor, tmp_path, size):
    done = athanor.run("export", tmp_path, "--out", tmp_path / "x", "--max-shard-size", size, check=False)
    assert done.returncode == 2 and "--max-shard-size" in done.stderr
