"""Folders with weights of 8 bits, and of 4, are imported as the values that `transformers` makes of them."""
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

BLOCK = (16, 8)
QUANTIZED = ("_proj.weight", "_proj_with_mqa.weight")
FIELDS = {
    "qwen3": dict(num_key_value_heads=2, head_dim=8),
    "deepseek_v3": dict(num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=16, v_head_dim=8,
                        n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, n_group=2, topk_group=1,
                        first_k_dense_replace=1),
    "gpt_oss": dict(num_key_value_heads=2, head_dim=8, num_local_experts=3, num_experts_per_tok=2, sliding_window=5),
}


def quantize(weight):
    """Returns the weight as 8 bits, and the factor of each block."""
    rows, columns = -(-weight.shape[0] // BLOCK[0]), -(-weight.shape[1] // BLOCK[1])
    factors = torch.rand(rows, columns) + 0.5
    spread = factors.repeat_interleave(BLOCK[0], 0).repeat_interleave(BLOCK[1], 1)[:weight.shape[0], :weight.shape[1]]
    return (weight / spread).to(torch.float8_e4m3fn), factors


def make_folder(folder, family, **settings):
    """Returns the tensors of a folder with matrices of 8 bits, and those that it should load as."""
    torch.manual_seed(5)
    config = AutoConfig.for_model(family, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=64,
                                  max_position_embeddings=64, eos_token_id=0, bos_token_id=None, pad_token_id=None, **FIELDS[family])
    model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tensors, expected = load_file(folder / "model.safetensors"), {}
    for name, tensor in list(tensors.items()):
        expected[name] = tensor
        if name.endswith(QUANTIZED):
            tensors[name], scales = quantize(tensor)
            tensors[f"{name}_scale_inv"] = scales
            expected[name] = Fp8Dequantize(None)._dequantize_one(tensors[name], scales, torch.float32)
    described = json.loads((folder / "config.json").read_text())
    described["quantization_config"] = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic",
                                            weight_block_size=list(BLOCK)) | settings
    (folder / "config.json").write_text(json.dumps(described))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return tensors, expected


def pack_experts(folder):
    """Packs the experts of a folder of gpt_oss; returns all its tensors, and those that it should load as."""
    tensors, expected = load_file(folder / "model.safetensors"), {}
    for name, tensor in list(tensors.items()):
        expected[name] = tensor
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        experts, columns, rows = tensors.pop(name).shape  # as [experts, in, out]
        blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), dtype=torch.uint8)
        scales = torch.randint(100, 140, (experts, rows, columns // 32), dtype=torch.uint8)
        scales[0, 0, 0], scales[0, 1, 0] = 0, 252  # the smallest, and the largest that makes finite numbers
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        expected[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    described = json.loads((folder / "config.json").read_text())
    described["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "lm_head"])
    (folder / "config.json").write_text(json.dumps(described))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return tensors, expected


def make_packed(folder):
    torch.manual_seed(6)
    config = AutoConfig.for_model("gpt_oss", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, vocab_size=64,
                                  max_position_embeddings=64, eos_token_id=0, bos_token_id=None, pad_token_id=None, **FIELDS["gpt_oss"])
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return pack_experts(folder)


def test_packed_experts_of_4_bits_are_imported_with_the_values_that_transformers_makes_of_them(athanor, tmp_path):
    _, expected = make_packed(tmp_path / "hf")
    athanor.run("import", tmp_path / "hf", "--out", tmp_path / "run")
    athanor.run("export", tmp_path / "run", "--out", tmp_path / "back", "--dtype", "float32")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(back[name], tensor.float()), name


def test_packed_experts_with_other_or_missing_scales_are_refused_by_name(athanor, tmp_path):
    tensors, _ = make_packed(tmp_path / "hf")
    name = "model.layers.0.mlp.experts.down_proj_scales"
    scales = tensors.pop(name)
    save_file(tensors, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    assert f"{name} is missing" in refusal(athanor, tmp_path / "hf")
    save_file(tensors | {name: scales[:, :8].clone()}, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    assert f"{name} has shape [3, 8, 1], expected [3, 64, 1]" in refusal(athanor, tmp_path / "hf")
    save_file(tensors | {name: scales.float()}, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    assert f"{name} is F32, expected U8" in refusal(athanor, tmp_path / "hf")
    no_number = scales.clone()
    no_number[2, 63, 0] = 255
    save_file(tensors | {name: no_number}, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    assert "is no number (byte 255)" in refusal(athanor, tmp_path / "hf")
    save_file(tensors | {name: scales}, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    assert 'only "mxfp4" and "fp8"' in refusal(athanor, tmp_path / "hf", quant_method="awq")


@pytest.mark.parametrize("family", ["qwen3", "deepseek_v3"])
def test_matrices_of_8_bits_are_imported_with_the_bits_that_transformers_makes_of_them(athanor, tmp_path, family):
    _, expected = make_folder(tmp_path / "hf", family)
    athanor.run("import", tmp_path / "hf", "--out", tmp_path / "run")
    athanor.run("export", tmp_path / "run", "--out", tmp_path / "back", "--dtype", "float32")
    back = {}
    for file in (tmp_path / "back").glob("*.safetensors"):
        back |= load_file(file)
    assert back.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(back[name], tensor.float()), name


def refusal(athanor, folder, **settings):
    described = json.loads((folder / "config.json").read_text())
    described["quantization_config"] |= settings
    (folder / "config.json").write_text(json.dumps(described))
    done = athanor.run("import", folder, "--out", folder.parent / "run", check=False)
    assert done.returncode == 2 and not (folder.parent / "run").exists(), done.stderr
    return done.stderr


@pytest.mark.parametrize("settings, says", [
    ({"quant_method": "gptq"}, 'quantization_config with quant_method = "gptq" is not supported, only "fp8"'),
    ({"fmt": "e5m2"}, 'quantization_config: fmt = "e5m2" is not supported, only "e4m3"'),
    ({"scale_fmt": "ue8m0"}, 'quantization_config: scale_fmt = "ue8m0" is not supported'),
    ({"weight_block_size": [16]}, "quantization_config: weight_block_size = [16] is not supported"),
    ({"weight_block_size": [32, 8]}, "q_proj.weight_scale_inv has shape [2, 4], expected [1, 4]"),
])
def test_another_way_of_fewer_bits_is_refused_by_name(athanor, tmp_path, settings, says):
    make_folder(tmp_path / "hf", "qwen3")
    assert says in refusal(athanor, tmp_path / "hf", **settings)


def test_factors_that_are_missing_or_that_no_matrix_needs_are_refused(athanor, tmp_path):
    tensors, _ = make_folder(tmp_path / "hf", "qwen3")
    name = "model.layers.0.self_attn.q_proj.weight"
    factors = tensors.pop(f"{name}_scale_inv")
    save_file(tensors, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    assert f"{name}_scale_inv is missing" in refusal(athanor, tmp_path / "hf")
    tensors |= {f"{name}_scale_inv": factors, name: tensors[name].float()}
    save_file(tensors, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    assert f"{name}_scale_inv is unexpected" in refusal(athanor, tmp_path / "hf")


def test_the_layer_that_the_class_of_deepseek_v3_leaves_out_is_named_once(athanor, tmp_path):
    tensors, _ = make_folder(tmp_path / "hf", "deepseek_v3")
    extra = {f"model.layers.61.{name}": torch.ones(3) for name in ("eh_proj.weight", "enorm.weight")}
    save_file(tensors | extra, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    done = athanor.run("import", tmp_path / "hf", "--out", tmp_path / "run")
    assert (done.stdout + done.stderr).count("model.layers.61 (2 tensors) is left out, as DeepseekV3ForCausalLM does") == 1
