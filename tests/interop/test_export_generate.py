"""`transformers` loads our exports, we import what it saves, and greedy text is the same."""
import functools
import json

import pytest
import torch
from runs import Run, make_data
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

torch.set_num_threads(1)
SLOW = pytest.mark.slow


def chosen(names, fast):
    """All names; those that are not in `fast` are slow."""
    return [name if name in fast else pytest.param(name, marks=SLOW) for name in names]


PROMPTS = ["the quick", "it 漢字", "fox jumps over the lazy dog and runs"]


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


# Fields of a family in addition to those of runs.py.
FAMILIES = {
    "olmo": [],
    "olmoe": [],
    "llama": ["model.head_dim=16", "model.rope_scaling.rope_type=llama3", "model.rope_scaling.factor=8",
              "model.rope_scaling.original_max_position_embeddings=16"],
    "qwen3": ["model.head_dim=12", "model.tie_word_embeddings=true", "model.rope_theta=1e6"],
    "qwen3_moe": ["model.head_dim=12", "model.moe_intermediate_size=20", "model.mlp_only_layers=[0]",
                  "model.norm_topk_prob=true", "model.rope_scaling.rope_type=yarn", "model.rope_scaling.factor=4",
                  "model.rope_scaling.original_max_position_embeddings=16"],
    "gpt2": ["model.num_key_value_heads=0", "model.tie_word_embeddings=true"],
    "olmo2": [],
    "olmo3": ["model.num_hidden_layers=4", "model.sliding_window=6", "model.rope_theta=5e5", "model.rope_scaling.rope_type=yarn",
              "model.rope_scaling.factor=4", "model.rope_scaling.original_max_position_embeddings=16"],
    "qwen2": ["model.sliding_window=5", "model.full_attention_layers=[0]"],
    "mistral": ["model.head_dim=12", "model.sliding_window=6"],
    "mixtral": ["model.norm_topk_prob=true", "model.rope_theta=1e6"],
    "starcoder2": ["model.tie_word_embeddings=true", "model.sliding_window=9"],
    "gpt_neox": ["model.num_key_value_heads=0", "model.partial_rotary_factor=0.5"],
    "phi3": ["model.sliding_window=11"],
    "qwen2_moe": ["model.num_shared_experts=1", "model.shared_expert_intermediate_size=28", "model.moe_intermediate_size=20",
                  "model.norm_topk_prob=true"],
    "gemma2": ["model.head_dim=12", "model.tie_word_embeddings=true", "model.sliding_window=5", "model.query_pre_attn_scalar=10",
               "model.attn_logit_softcapping=3", "model.final_logit_softcapping=20"],
    "deepseek_v2": ["model.num_key_value_heads=0", "model.num_experts=6", "model.num_experts_per_tok=2", "model.moe_intermediate_size=20", "model.mlp_only_layers=[0]", "model.num_shared_experts=2",
                    "model.q_lora_rank=12", "model.kv_lora_rank=10", "model.qk_nope_head_dim=8", "model.qk_rope_head_dim=4",
                    "model.v_head_dim=6", "model.routed_scaling_factor=2.5", "model.n_group=2", "model.topk_group=1",
                    "model.rope_scaling.rope_type=yarn", "model.rope_scaling.factor=4", "model.rope_scaling.mscale=0.7",
                    "model.rope_scaling.mscale_all_dim=0.7", "model.rope_scaling.original_max_position_embeddings=16"],
    "deepseek_v3": ["model.num_key_value_heads=0", "model.num_experts=6", "model.num_experts_per_tok=2", "model.moe_intermediate_size=20",
                    "model.mlp_only_layers=[0]", "model.kv_lora_rank=10", "model.qk_nope_head_dim=8", "model.qk_rope_head_dim=4",
                    "model.v_head_dim=6", "model.norm_topk_prob=true", "model.n_group=2", "model.topk_group=1", "moe.bias_update_rate=0.01"],
    "gpt_oss": ["model.head_dim=12", "model.num_experts=6", "model.num_experts_per_tok=2", "model.norm_topk_prob=true",
                "model.sliding_window=5", "model.rope_scaling.rope_type=yarn", "model.rope_scaling.factor=4",
                "model.rope_scaling.original_max_position_embeddings=16", "model.rope_scaling.truncate=false"],
    "gemma3_text": ["model.head_dim=12", "model.tie_word_embeddings=true", "model.sliding_window=5", "model.full_attention_layers=[1]",
                    "model.window_rope_theta=300", "model.rope_scaling.rope_type=linear", "model.rope_scaling.factor=4"],
}


def train(athanor, folder, data, family):
    made = Run(athanor, folder, data, family)
    made.train("model.initializer_range=0.1", *FAMILIES[family])  # far from uniform logits, so that greedy choices have no near ties
    return made


@pytest.fixture(scope="module")
def runs(athanor, data, tmp_path_factory):
    """Returns the run of a family, which is trained when it is first asked for."""
    return functools.cache(lambda family: train(athanor, tmp_path_factory.mktemp(f"run-{family}"), data, family))


@pytest.fixture(params=FAMILIES)
def run(request, runs):
    return runs(request.param)


@pytest.fixture(params=chosen(FAMILIES, ["llama"]))
def any_run(request, runs):
    """A run for what does not depend on its family."""
    return runs(request.param)


def generate_ours(athanor, model, prompt, count, *options):
    done = athanor.run("generate", model, "--prompt", prompt, "--max-new-tokens", count, "--dtype", "float32", "--json", *options)
    return json.loads(done.stdout)


def greedy_theirs(folder, prompts, count):
    """Returns (prompt ids, new ids) of each prompt."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for prompt in prompts:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
        yield ids[0].tolist(), out[0, ids.shape[1]:].tolist()


def greedy_ours(athanor, model, prompts, count):
    options = [part for prompt in prompts for part in ("--prompt", prompt)]
    done = athanor.run("generate", model, *options, "--max-new-tokens", count, "--dtype", "float32", "--temperature", 0, "--json")
    for line in map(json.loads, done.stdout.splitlines()):
        yield line["prompt_ids"], line["new_ids"] + ([0] if line["ended"] else [])


# Each family from its run or from the folder that it was exported to; and all from both. test_generate reads folders of each family.
@pytest.mark.parametrize("run, kinds", [
    ("olmo", ["run"]), ("olmoe", ["hf"]), ("llama", ["run"]), ("qwen3", ["hf"]), ("qwen3_moe", ["run"]), ("gpt2", ["run"]),
    ("olmo2", ["hf"]), ("olmo3", ["run"]), ("qwen2", ["hf"]), ("mistral", ["run"]), ("mixtral", ["hf"]), ("starcoder2", ["run"]),
    ("gpt_neox", ["hf"]), ("phi3", ["run"]), ("gemma2", ["hf"]), ("gemma3_text", ["run"]), ("qwen2_moe", ["hf"]), ("deepseek_v2", ["run"]),
    ("deepseek_v3", ["hf"]), ("gpt_oss", ["run"]),
    *(pytest.param(family, ["run", "hf"], marks=SLOW) for family in FAMILIES)], indirect=["run"])
def test_greedy_text_equals_that_of_transformers(run, kinds, athanor, tmp_path):
    athanor.run("export", run.folder, "--out", tmp_path / "hf", "--dtype", "float32")
    theirs = list(greedy_theirs(tmp_path / "hf", PROMPTS, 20))
    for kind in kinds:
        assert list(greedy_ours(athanor, run.folder if kind == "run" else tmp_path / "hf", PROMPTS, 20)) == theirs


def test_a_model_only_checkpoint_loads_directly(run):
    folder = run.folder / "models" / "step-00000008"
    model, loading = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    assert model.dtype == torch.bfloat16
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert AutoTokenizer.from_pretrained(folder)("the fox").input_ids


@pytest.mark.parametrize("run", chosen(FAMILIES, ["olmoe", "qwen3"]), indirect=True)
def test_an_exported_model_has_the_loss_we_measured(run, data, tmp_path, athanor):
    import numpy

    athanor.run("export", run.folder, "--out", tmp_path / "hf", "--dtype", "bfloat16")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32).eval()
    rows = torch.tensor(numpy.load(next(data.glob("*validation*.npy")))[:8].astype("int64"))
    with torch.no_grad():
        logits = model(rows).logits[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))
    # The weights are the same bf16, but ours were also multiplied in bf16: each of some 20 roundings of relative size 2^-9 moves
    # a logit of size near 1, and the mean over 248 targets averages that.
    assert run.metrics()[-1]["validation_loss"] == pytest.approx(float(loss), abs=20**0.5 * 2**-9)


SPLITS = {  # how the families' own tokenizers cut words
    "llama": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen3_moe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def make_tokenizer(family, texts):
    """Trains a small tokenizer of a family's kind."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(ignore_merges=family == "llama"))
    if family != "llama":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLITS[family]), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=310, special_tokens=["<|end_of_text|>", "<|begin_of_text|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


@pytest.mark.parametrize("family, folders", [
    ("llama", ["back"]), ("qwen3_moe", ["run"]),
    pytest.param("llama", ["hf", "run"], marks=SLOW), pytest.param("qwen3_moe", ["hf", "back"], marks=SLOW)])
def test_greedy_text_with_a_tokenizer_of_its_kind_equals_that_of_transformers(athanor, tmp_path, family, folders):
    from transformers import PreTrainedTokenizerFast

    tokenizer = make_tokenizer(family, ["It's 12345 o'clock; the quick brown fox — 漢字 é"] * 5)
    make_hf(tmp_path / "hf", family, vocab_size=tokenizer.get_vocab_size())  # our ids always have a token
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end_of_text|>", bos_token="<|begin_of_text|>",
                            model_max_length=64).save_pretrained(tmp_path / "hf")
    athanor.run("import", tmp_path / "hf", "--out", tmp_path / "run")
    athanor.run("export", tmp_path / "run", "--out", tmp_path / "back", "--dtype", "fp32")
    assert AutoTokenizer.from_pretrained(tmp_path / "back").eos_token == "<|end_of_text|>"
    prompts = ["It's 98765 o'clock", "  the\n\nfox 漢"]
    theirs = list(greedy_theirs(tmp_path / "hf", prompts, 20))
    for folder in folders:
        assert list(greedy_ours(athanor, tmp_path / folder, prompts, 20)) == theirs


def test_a_sentencepiece_model_goes_through_import_and_export(athanor, tmp_path):
    import io

    sentencepiece = pytest.importorskip("sentencepiece")

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["the quick brown fox jumps over it"] * 20), model_writer=model,
                                             vocab_size=60, model_type="bpe", minloglevel=2)
    make_hf(tmp_path / "hf", "llama", eos_token_id=2)
    (tmp_path / "hf" / "tokenizer.model").write_bytes(model.getvalue())
    athanor.run("import", tmp_path / "hf", "--out", tmp_path / "run")
    athanor.run("export", tmp_path / "run", "--out", tmp_path / "back", "--dtype", "fp32")
    assert (tmp_path / "back" / "tokenizer.model").read_bytes() == model.getvalue()
    ours = [generate_ours(athanor, tmp_path / folder, "the quick fox", 10, "--temperature", 0) for folder in ("hf", "run", "back")]
    assert ours[0] == ours[1] == ours[2]
    assert ours[0]["prompt_ids"] == sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).encode("the quick fox")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_an_accelerator_auto_is_the_cpu(any_run, athanor):
    texts = [generate_ours(athanor, any_run.folder, "the", 8, "--temperature", 0, "--device", device)["new_ids"]
             for device in ("auto", "cpu")]
    assert texts[0] == texts[1]


ABSENT = {"cuda": "--device is cuda: ", "xpu": "; use --device cpu to compute on the CPU", "gpu": "expected auto, cpu, cuda or xpu, got gpu"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("command, device", [
    pytest.param(command, device, marks=[] if (i + j) % 3 == 0 else SLOW)  # each command and each device once or twice
    for i, command in enumerate(["generate . --prompt x", "smoke", "bench moe", "bench gemm", "bench optimizer"])
    for j, device in enumerate(ABSENT)])
def test_a_device_that_is_not_there_is_refused_in_one_line(athanor, command, device):
    done = athanor.run(*command.split(), "--device", device, check=False)
    assert done.returncode == 2 and ABSENT[device] in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_sampling_repeats_with_its_seed_and_only_with_it(any_run, athanor):
    texts = [generate_ours(athanor, any_run.folder, "the", 30, "--seed", seed, "--top-p", 0.9)["new_ids"] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def make_hf(folder, family, **fields):
    torch.manual_seed(3)
    sparse = dict(num_experts=6, num_experts_per_tok=2) if "moe" in family else {}
    if family in ("mixtral", "gpt_oss"):
        sparse = dict(num_local_experts=6, num_experts_per_tok=2)
    fields = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                  vocab_size=320, max_position_embeddings=64, eos_token_id=0, pad_token_id=None, bos_token_id=None,
                  initializer_range=0.1, **sparse) | fields
    if family == "deepseek_v3":
        fields = dict(n_group=3, topk_group=2, first_k_dense_replace=1) | fields
    if family.startswith("deepseek"):
        fields = dict(q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=12, n_routed_experts=6, num_experts_per_tok=2,
                      moe_intermediate_size=24) | fields | dict(num_key_value_heads=4)
    if family == "gpt2":
        fields["n_inner"] = fields.pop("intermediate_size")
        del fields["num_key_value_heads"]
    if family == "gpt_neox":
        del fields["num_key_value_heads"]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **fields))
    with torch.no_grad():  # biases begin as zeros, which any place could hold
        for name, parameter in model.named_parameters():
            if name.endswith((".bias", "_bias")):
                parameter.add_(0.1 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.add_(0.1 * torch.randn_like(buffer))
    model.save_pretrained(folder, max_shard_size="30KB")
    return model


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16,
              rope_theta=5e5)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, rope_theta=1e4, beta_fast=16.0, truncate=False)


# Each family with what it can have, and each way to scale the rotary angles; and then each of these alone.
TOGETHER = [
    ("olmo", {"tie_word_embeddings": True, "rope_parameters": dict(rope_type="linear", factor=2.0, rope_theta=5e5)}),
    ("olmoe", {"tie_word_embeddings": True, "clip_qkv": 8.0, "rope_parameters": YARN}),
    ("llama", {"tie_word_embeddings": True, "head_dim": 12, "rms_norm_eps": 1e-5, "rope_parameters": LLAMA3}),
    ("qwen3", {"head_dim": 16, "rope_parameters": dict(rope_type="dynamic", factor=2.0, rope_theta=1e4)}),
    ("qwen3_moe", {"head_dim": 16, "norm_topk_prob": True, "moe_intermediate_size": 24, "num_hidden_layers": 5, "decoder_sparse_step": 2,
                   "mlp_only_layers": [1]}),
    ("gpt2", {"layer_norm_epsilon": 1e-3, "scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}),  # with rates of dropout, by default
    ("olmo2", {"tie_word_embeddings": True, "rope_parameters": LLAMA3}),
    ("olmo3", {"num_hidden_layers": 4, "sliding_window": 6, "rope_parameters": {
        "full_attention": YARN, "sliding_attention": dict(rope_type="default", rope_theta=1e4)}}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    ("mistral", {"head_dim": 12, "sliding_window": None}),
    ("mixtral", {"head_dim": 12, "sliding_window": 5}),
    ("starcoder2", {"norm_epsilon": 1e-3, "tie_word_embeddings": False, "residual_dropout": 0.1}),
    ("gpt_neox", {"rotary_pct": 0.25, "rotary_emb_base": 5e3}),
    ("phi3", {"sliding_window": 5, "rope_parameters": dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.75)}),
    ("phi3", {"original_max_position_embeddings": 32, "rope_parameters": dict(rope_type="longrope", rope_theta=1e4, factor=2.0,
                                                                             short_factor=[1.0, 1.5, 2.0, 3.5], long_factor=[2.0, 3.0, 4.0, 5.25])}),
    ("qwen2_moe", {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 20, "mlp_only_layers": [1], "use_sliding_window": True,
                   "sliding_window": 6, "num_hidden_layers": 3, "norm_topk_prob": True}),
    ("deepseek_v2", {"num_hidden_layers": 3, "first_k_dense_replace": 1, "topk_method": "group_limited_greedy", "n_group": 3, "topk_group": 2, "routed_scaling_factor": 1.5}),
    ("deepseek_v3", {"num_nextn_predict_layers": 0}),
    ("gpt_oss", {"head_dim": 12, "sliding_window": 6, "num_hidden_layers": 3, "swiglu_limit": 3.0, "rope_parameters": YARN}),
    ("gemma2", {"head_dim": 12, "query_pre_attn_scalar": 20, "sliding_window": 6, "final_logit_softcapping": None}),
    ("gemma3_text", {"head_dim": 12, "query_pre_attn_scalar": 20, "sliding_window": 6, "final_logit_softcapping": 8.0,
                     "layer_types": ["full_attention", "sliding_attention"], "rope_parameters": {
                         "full_attention": YARN, "sliding_attention": dict(rope_type="default", rope_theta=50.0)}}),
]
ALONE = [
    ("olmo", {}), ("olmo", {"tie_word_embeddings": True}),
    ("olmoe", {}), ("olmoe", {"tie_word_embeddings": True, "clip_qkv": 8.0}),
    ("llama", {}), ("llama", {"tie_word_embeddings": True, "head_dim": 12, "rms_norm_eps": 1e-5}),
    ("llama", {"rope_parameters": LLAMA3}), ("llama", {"rope_parameters": YARN}),
    ("llama", {"rope_parameters": dict(rope_type="linear", factor=2.0, rope_theta=5e5)}),
    ("llama", {"rope_parameters": dict(rope_type="dynamic", factor=2.0, rope_theta=1e4)}),
    ("qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    ("qwen3_moe", {"head_dim": 16, "norm_topk_prob": True, "moe_intermediate_size": 24}),
    ("qwen3_moe", {"moe_intermediate_size": 24, "num_hidden_layers": 5, "decoder_sparse_step": 2, "mlp_only_layers": [1]}),
    ("qwen3_moe", {"use_sliding_window": True, "sliding_window": 6}),
    ("olmo3", {"num_hidden_layers": 3}), ("gpt_neox", {"rotary_pct": 1.0}), ("phi3", {}), ("qwen2", {}), ("mistral", {"sliding_window": 7}), ("starcoder2", {"sliding_window": 5}),
    ("deepseek_v2", {"q_lora_rank": None, "v_head_dim": 5}), ("deepseek_v3", {"first_k_dense_replace": 0, "norm_topk_prob": False,
                                                                             "n_group": 1, "topk_group": 1, "num_mtp_layers": 0}),
    ("gemma2", {}), ("gemma3_text", {"tie_word_embeddings": False}),
    ("gpt_oss", {"tie_word_embeddings": True, "intermediate_size": 37, "rope_parameters": dict(rope_type="default", rope_theta=1e4)}),
]


@pytest.mark.parametrize("family,fields", [*TOGETHER, *(pytest.param(*case, marks=SLOW) for case in ALONE)])
def test_import_then_export_gives_back_every_bit(athanor, tmp_path, data, family, fields):
    model = make_hf(tmp_path / "hf", family, **fields)
    (tmp_path / "hf" / "tokenizer.json").write_bytes((data / "tokenizer.json").read_bytes())
    athanor.run("import", tmp_path / "hf", "--out", tmp_path / "run")
    athanor.run("export", tmp_path / "run", "--out", tmp_path / "back", "--dtype", "float32")
    back = AutoModelForCausalLM.from_pretrained(tmp_path / "back", dtype=torch.float32)
    assert type(back) is type(model)
    theirs, ours = model.state_dict(), back.state_dict()
    assert theirs.keys() == ours.keys()
    for name in theirs:
        assert torch.equal(theirs[name], ours[name]), name
    # We write where version 4 has the partial rotation, too, and of DeepSeek-V3 what its published config.json has and the class doesn't read.
    ignored = {"_name_or_path", "transformers_version", "architectures", "dtype", "partial_rotary_factor", "scoring_func", "topk_method"}
    before, after = AutoConfig.from_pretrained(tmp_path / "hf").to_dict(), AutoConfig.from_pretrained(tmp_path / "back").to_dict()
    assert {k: v for k, v in before.items() if k not in ignored} == {k: v for k, v in after.items() if k not in ignored}


def test_the_first_files_of_gpt2_have_no_prefix_and_the_mask_of_each_layer(athanor, tmp_path, data):
    make_hf(tmp_path / "hf", "gpt2")
    named = {}
    for file in list((tmp_path / "hf").glob("*.safetensors")):
        named |= {name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}
        file.unlink()
    (tmp_path / "hf" / "model.safetensors.index.json").unlink()
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 64, 64).tril() for layer in range(2)}
    save_file(named | masks, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    (tmp_path / "hf" / "tokenizer.json").write_bytes((data / "tokenizer.json").read_bytes())
    athanor.run("import", tmp_path / "hf", "--out", tmp_path / "run")
    assert list(greedy_ours(athanor, tmp_path / "run", PROMPTS, 20)) == list(greedy_theirs(tmp_path / "hf", PROMPTS, 20))
    named["h.0.mlp.c_fc.weight"] = named["h.0.mlp.c_fc.weight"].t().contiguous()  # messages have the names of the file
    save_file(named | {"h.0.extra": masks["h.0.attn.bias"]}, tmp_path / "hf" / "model.safetensors", {"format": "pt"})
    done = athanor.run("import", tmp_path / "hf", "--out", tmp_path / "wrong", check=False)
    assert done.returncode == 2 and "; h.0.extra is unexpected" in done.stderr, done.stderr
    assert ": h.0.mlp.c_fc.weight has shape [48, 32], expected [32, 48]" in done.stderr, done.stderr


@pytest.mark.parametrize("family", ["mixtral", "gpt_neox"])
def test_a_folder_with_the_names_of_its_class_loads(athanor, tmp_path, data, family):
    model = make_hf(tmp_path / "hf", family)
    model.save_pretrained(tmp_path / "class", save_original_format=False)
    names = set(load_file(tmp_path / "class" / "model.safetensors"))
    assert names != set().union(*(load_file(file) for file in (tmp_path / "hf").glob("*.safetensors"))), "nothing is renamed"
    for folder in ("hf", "class"):
        (tmp_path / folder / "tokenizer.json").write_bytes((data / "tokenizer.json").read_bytes())
        athanor.run("import", tmp_path / folder, "--out", tmp_path / f"{folder}-run")
    texts = [list(greedy_ours(athanor, tmp_path / f"{folder}-run", PROMPTS, 20)) for folder in ("hf", "class")]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("family", chosen(["olmoe", "llama", "qwen3_moe"], ["olmoe"]))
def test_an_imported_model_trains_on(athanor, tmp_path, data, family):
    make_hf(tmp_path / "hf", family)
    (tmp_path / "hf" / "tokenizer.json").write_bytes((data / "tokenizer.json").read_bytes())
    athanor.run("import", tmp_path / "hf", "--out", tmp_path / "run")
    settings = [f"data.path={data}", "train.steps=3", "optimizer.warmup_steps=1", "train.global_batch_size=4", "metrics.gemm_peak_tflops=0.1"]
    done = athanor.run("train", tmp_path / "run" / "config.toml", *(part for s in settings for part in ("--set", s)))
    assert "resumed from" in done.stderr and done.stdout.count("step:") == 3
    assert ("validation loss" in done.stderr) == any(data.glob("validation*")), "what is not set follows from the data"


@pytest.mark.parametrize("family", chosen(FAMILIES, ["llama", "qwen3_moe"]))
def test_training_from_a_folder_takes_its_config_and_weights(athanor, tmp_path, data, family):
    make_hf(tmp_path / "hf", family)
    run = Run(athanor, tmp_path, data)
    done = run.train(f"model.from={tmp_path / 'hf'}", "train.steps=3")
    assert "weights from" in done.stderr and "prepared with" not in done.stderr
    assert f'family = "{family}"' in (run.folder / "config.toml").read_text()


def biases_in(folder):
    tensors = {}
    for file in folder.glob("*.safetensors"):
        tensors |= {name: tensor for name, tensor in load_file(file).items() if name.endswith("e_score_correction_bias")}
    return tensors


@pytest.mark.parametrize("rate", [0, 0.01])
def test_a_run_begins_with_the_biases_of_its_folder_and_changes_them_by_the_rate_alone(athanor, tmp_path, data, rate):
    make_hf(tmp_path / "hf", "deepseek_v3", num_hidden_layers=3)
    run = Run(athanor, tmp_path, data)
    settings = [f"model.from={tmp_path / 'hf'}", f"moe.bias_update_rate={rate}", "optimizer.warmup_steps=1", "checkpoint.model_interval=1"]
    run.train(*settings, "train.steps=2")
    run.train(*settings, "train.steps=3")  # resumes
    athanor.run("export", run.folder, "--out", tmp_path / "back")  # in bf16, in which biases stay fp32
    before = biases_in(tmp_path / "hf")
    assert len(before) == 2
    for step, folder in [(1, run.folder / "models" / "step-00000001"), (3, run.folder / "models" / "step-00000003"), (3, tmp_path / "back")]:
        after = biases_in(folder)
        assert after.keys() == before.keys()
        for name, bias in before.items():
            steps = (after[name] - bias) / rate if rate else after[name] - bias
            assert after[name].dtype == torch.float32
            assert torch.allclose(steps, steps.round(), atol=1e-4) and steps.abs().max() <= step * (rate > 0) + 1e-4
            assert steps.abs().max() > 0.5 if rate else torch.equal(after[name], bias)


def test_training_from_a_folder_with_another_tokenizer_warns(athanor, tmp_path, data):
    make_hf(tmp_path / "hf", "llama")
    tokenizer = json.loads((data / "tokenizer.json").read_text())
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(tokenizer, indent=7))
    done = Run(athanor, tmp_path, data).train(f"model.from={tmp_path / 'hf'}", "train.steps=3")
    assert f"the data were not prepared with {tmp_path / 'hf' / 'tokenizer.json'}" in done.stderr


def test_an_all_zero_router_is_refused(athanor, tmp_path, data):
    model = make_hf(tmp_path / "hf", "olmoe")
    with torch.no_grad():
        model.model.layers[1].mlp.gate.weight.zero_()
    model.save_pretrained(tmp_path / "hf")
    done = Run(athanor, tmp_path, data).train(f"model.from={tmp_path / 'hf'}", check=False)
    assert done.returncode == 2
    assert "model.layers.1.mlp.gate.weight is all zero" in done.stderr


@pytest.mark.parametrize("spoil,words", [
    pytest.param(lambda folder: (folder / "config.json").write_text("{"), ["config.json"], marks=SLOW),
    (lambda folder: (folder / "config.json").unlink(), ["config.json"]),
    (lambda folder: next(folder.glob("*.safetensors")).write_bytes(b"\\x10\\0\\0"), [".safetensors"]),
    pytest.param(lambda folder: next(folder.glob("*.safetensors")).unlink(), [".safetensors"], marks=SLOW),
])
def test_a_damaged_folder_is_refused_by_file(athanor, tmp_path, spoil, words):
    make_hf(tmp_path / "hf", "olmoe")
    spoil(tmp_path / "hf")
    done = athanor.run("import", tmp_path / "hf", "--out", tmp_path / "run", check=False)
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


@pytest.mark.parametrize("family,change,words", [
    ("llama", {"model_type": "gemma"}, ['model_type "gemma" is not supported', "olmo, olmo2, olmo3, olmoe, llama, qwen2"]),
    ("gpt2", {"activation_function": "relu", "scale_attn_weights": False, "n_head": 0},
     ['activation_function = "relu"', "scale_attn_weights = false", "n_head"]),
    ("llama", {"mlp_bias": True, "hidden_act": "gelu"}, ["mlp_bias = true", 'hidden_act = "gelu"']),
    ("qwen3", {"head_dim": 12}, ["q_norm.weight has shape [128], expected [12]"]),
    ("qwen3_moe", {"mlp_only_layers": [1]}, ["model.layers.1.mlp.gate_proj.weight is missing", "and 14 more"]),
    ("qwen3_moe", {"model_type": "olmoe", "architectures": ["OlmoeForCausalLM"]}, ["expected"]),
    # hf_config_test refuses such configurations too, and other shapes are refused like those above.
    *(pytest.param(*case, marks=SLOW) for case in [
        ("llama", {"attention_bias": True}, ["attention_bias = true"]),
        ("llama", {"sliding_window": 16}, ["sliding_window = 16"]),
        ("llama", {"use_sliding_window": True}, ["use_sliding_window = true"]),
        ("qwen3", {"rope_parameters": {"rope_type": "proportional", "rope_theta": 1e4}}, ['rope_type "proportional"', "yarn"]),
        ("qwen3", {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0, 2.0], "long_factor": [1.0] * 64,
                                       "factor": 2.0}}, ["short_factor has 2 numbers; longrope needs 64"]),
        ("qwen3_moe", {"partial_rotary_factor": 0.5}, ["partial_rotary_factor = 0.5"]),
        ("llama", {"head_dim": 16}, ["q_proj.weight has shape [32, 32], expected [64, 32]"]),
        ("qwen3_moe", {"moe_intermediate_size": 20}, ["mlp.experts.0.gate_proj.weight has shape [768, 32], expected [20, 32]"]),
    ]),
])
def test_a_config_that_is_not_computed_or_not_its_weights_is_refused(athanor, tmp_path, family, change, words):
    make_hf(tmp_path / "hf", family)
    config = json.loads((tmp_path / "hf" / "config.json").read_text()) | change
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config))
    done = athanor.run("import", tmp_path / "hf", "--out", tmp_path / "run", check=False)
    assert done.returncode == 2 and not (tmp_path / "run").exists(), done.stderr
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_an_end_of_document_token_beyond_the_vocabulary_is_refused_by_name(athanor, tmp_path, data):
    make_hf(tmp_path / "hf", "llama")
    (tmp_path / "hf" / "tokenizer.json").write_bytes((data / "tokenizer.json").read_bytes())
    config = json.loads((tmp_path / "hf" / "config.json").read_text()) | {"eos_token_id": 320}
    (tmp_path / "hf" / "config.json").write_text(json.dumps(config))
    done = athanor.run("generate", tmp_path / "hf", "--prompt", "x", check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"{tmp_path / 'hf'}: eos_token_id is 320, beyond the model's vocab_size (320)" in done.stderr
    assert "correct it in its config.json" in done.stderr


@pytest.mark.parametrize("arguments,words", [
    pytest.param(["generate", "nowhere", "--prompt", "x"], ["nowhere"], marks=SLOW),
    (["export", "nowhere", "--out", "x"], ["nowhere"]),
    (["generate"], ["model is required"]),
    (["generate", ".", "--prompt", "x", "--top-p", "2"], ["--top-p"]),
    (["train", "nowhere.toml"], ["nowhere.toml"]),
    (["frobnicate"], ["frobnicate"]),
])
def test_a_wrong_command_line_exits_with_2_and_says_why(athanor, tmp_path, arguments, words):
    done = athanor.run(*arguments, check=False, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    for word in words:
        assert word in done.stderr
