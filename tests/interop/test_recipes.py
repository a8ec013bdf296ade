"""Every recipe is a configuration without a fault; each tiny one trains, and there is one for each family."""
import pathlib
import tomllib

import pytest
from runs import make_data

RECIPES = sorted((pathlib.Path(__file__).resolve().parents[2] / "recipes").glob("*.toml"))
TINY = [path for path in RECIPES if path.stem.endswith("-tiny")]


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


def test_every_recipe_is_a_configuration_without_a_fault(athanor):
    for recipe in RECIPES:
        assert athanor.run("config", recipe).stdout.startswith("# The decoder.\n[model]"), recipe


def test_there_is_a_tiny_recipe_of_each_family():
    families = {tomllib.loads(path.read_text())["model"]["family"] for path in TINY}
    assert families == {"olmo", "olmo2", "olmo3", "olmoe", "llama", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mistral", "mixtral",
                        "starcoder2", "gpt2", "gpt_neox", "phi3", "gemma2", "gemma3_text", "deepseek_v2", "deepseek_v3", "gpt_oss", "m6"}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", TINY, ids=lambda path: path.stem)
def test_a_tiny_recipe_trains(athanor, data, recipe, tmp_path):
    settings = [f"data.path={data}", "data.seq_len=32", "model.vocab_size=320",
                "train.global_batch_size=4", "train.steps=3", "optimizer.warmup_steps=1", "train.validation_interval=0",
                f"train.run_dir={tmp_path / 'run'}"]
    athanor.run("train", recipe, *[part for setting in settings for part in ("--set", setting)])
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count('"loss"') >= 3
