"""A folder of `transformers` that has a config.json and no weights gives a run its architecture, with random weights."""
import copy
import json
import math

import pytest
from runs import Run, make_data
from transformers import AutoConfig, AutoModelForCausalLM

SAID = "random initialisation of its architecture"


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


def make_config(folder, family="llama", **fields):
    sparse = dict(num_experts=6, num_experts_per_tok=2) if "moe" in family else {}
    fields = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
                  vocab_size=320, max_position_embeddings=64, eos_token_id=0, pad_token_id=None, bos_token_id=None, **sparse) | fields
    config = AutoConfig.for_model(family, **fields)
    config.save_pretrained(folder)
    return config


@pytest.fixture
def run(athanor, data, tmp_path):
    made = Run(athanor, tmp_path, data)
    text = made.config.read_text()
    made.config.write_text(f'[model]\nfrom = "{tmp_path / "hf"}"\n' + text[text.index("[data]"):])
    return made


@pytest.mark.parametrize("family", ["olmo", "llama", "qwen3_moe",
                                    *(pytest.param(family, marks=pytest.mark.slow) for family in ("olmoe", "qwen3"))])
def test_it_has_the_shapes_of_transformers_and_begins_near_the_log_of_the_vocabulary(athanor, run, tmp_path, family):
    config = make_config(tmp_path / "hf", family)
    done = run.train("train.steps=1", "optimizer.warmup_steps=1")
    assert f"no weights in {tmp_path / 'hf'}: {SAID}, by train.seed = 5" in done.stderr and "weights from" not in done.stderr
    # Logits of random weights are near 0: hidden states of norm sqrt(32) times rows of 0.02 sqrt(32) give some 0.1.
    assert run.metrics()[0]["loss"] == pytest.approx(math.log(320), abs=0.1)
    athanor.run("export", run.folder, "--out", tmp_path / "back", "--dtype", "float32")
    theirs = AutoModelForCausalLM.from_config(config).state_dict()
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "back").state_dict()
    assert {name: tensor.shape for name, tensor in ours.items()} == {name: tensor.shape for name, tensor in theirs.items()}


def test_the_seed_chooses_the_weights_and_a_resumed_run_continues_from_its_checkpoint(run, tmp_path):
    make_config(tmp_path / "hf")
    run.train()
    whole = run.numbers()
    again = copy.copy(run)
    again.folder = tmp_path / "again"
    again.train(f"train.run_dir={again.folder}", fault="train.after_step:kill@5", check=False)
    done = again.train(f"train.run_dir={again.folder}")
    assert "resumed from" in done.stderr and SAID not in done.stderr
    assert again.numbers() == whole
    again.folder = tmp_path / "other"
    again.train("train.seed=6", f"train.run_dir={again.folder}")
    assert again.numbers()[0]["loss"] != whole[0]["loss"]


def test_config_verify_and_dry_run_know_the_architecture(athanor, run, tmp_path):
    make_config(tmp_path / "hf", "qwen3")
    shown = athanor.run("config", run.config).stdout
    assert 'family = "qwen3"' in shown and f"# no weights in {tmp_path / 'hf'}: a run begins with random ones" in shown
    assert "parameters" in athanor.run("verify", run.config, "--dry-run", "--ranks", 2, "--set", "data.seq_len=32").stdout
    athanor.run("verify", run.config, "--reference", "portable", "--set", "data.seq_len=32", "--dtype", "float32")


def save_weights(folder, **options):
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder, **options)


@pytest.mark.parametrize("spoil, answer", [
    (lambda folder: (save_weights(folder, max_shard_size="30KB"), next(folder.glob("*.safetensors")).unlink()), "is missing, which"),
    pytest.param(lambda folder: (save_weights(folder, max_shard_size="30KB"), [file.unlink() for file in folder.glob("*.safetensors")]),
     "is missing, which", marks=pytest.mark.slow),
    (lambda folder: (save_weights(folder, max_shard_size="30KB"), (folder / "model.safetensors.index.json").unlink()), "has neither"),
    pytest.param(lambda folder: (folder / "model.safetensors").symlink_to(folder / "blob"), "has neither", marks=pytest.mark.slow),
    (lambda folder: (folder / "model.safetensors.incomplete").write_bytes(b""), "has neither"),
    pytest.param(lambda folder: (folder / "pytorch_model.bin").write_bytes(b"x"), "pytorch_model.bin is not read", marks=pytest.mark.slow),
    pytest.param(lambda folder: (folder / "athanor.json").write_text("{}"), "has neither", marks=pytest.mark.slow),
    (lambda folder: (save_weights(folder), make_config(folder, num_hidden_layers=3)), "is missing"),
])
def test_weights_that_are_not_whole_are_never_replaced_by_random_ones(run, tmp_path, spoil, answer):
    make_config(tmp_path / "hf")
    spoil(tmp_path / "hf")
    done = run.train("train.steps=1", "optimizer.warmup_steps=1", check=False)
    assert done.returncode == 2 and answer in done.stderr and SAID not in done.stderr, done.stderr
    assert not run.folder.exists() or not list(run.folder.glob("metrics*"))


@pytest.mark.parametrize("change, answer", [
    ({"model_type": "gemma"}, 'model_type "gemma" is not supported'),
    ({"attention_bias": True}, "attention_bias = true"),
    pytest.param({"hidden_size": 33}, "hidden_size", marks=pytest.mark.slow),
])
def test_an_architecture_that_is_not_computed_is_refused(athanor, run, tmp_path, change, answer):
    make_config(tmp_path / "hf")
    path = tmp_path / "hf" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    for words in (["train", run.config], ["config", run.config]):
        done = athanor.run(*words, check=False)
        assert done.returncode == 2 and answer in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_only_a_run_takes_a_folder_without_weights(athanor, data, run, tmp_path):
    make_config(tmp_path / "hf")
    for words in (["import", tmp_path / "hf", "--out", tmp_path / "imported"], ["generate", tmp_path / "hf", "--prompt", "a"]):
        done = athanor.run(*words, check=False)
        assert done.returncode == 2 and "has neither" in done.stderr, done.stderr
    done = run.train(f"model.from={tmp_path / 'hf' / 'config.json'}", check=False)
    assert done.returncode == 2 and "is a file; name the folder that holds config.json" in done.stderr
