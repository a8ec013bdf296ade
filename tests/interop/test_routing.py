"""Routing other than dropless top-k: runs of every kind of balance, their metrics, and state that survives a kill."""
import json
import signal

import pytest
from runs import Run, make_data

NO_MODELS = "checkpoint.model_interval=0"


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


@pytest.fixture
def run(athanor, data, tmp_path):
    return Run(athanor, tmp_path, data)


def bias_of(run, step=8):
    return run.manifest(step)["state"]["router_bias"]


@pytest.mark.parametrize("settings", [
    ["moe.bias_update_rate=0.01", "moe.router_noise=0.5", "moe.aux_scope=global", NO_MODELS],
    ["moe.balance=swipe", "moe.balance_group=2", "model.num_shared_experts=1", "model.router_score=sigmoid",
     "model.norm_topk_prob=true", "model.routed_scaling_factor=2.5", NO_MODELS],
    ["moe.balance=capacity", "moe.capacity_factor=1.0", "moe.capacity_order=position", "moe.combine_weights=before"],
], ids=["bias-noise", "swipe-shared-sigmoid", "capacity"])
def test_a_killed_run_resumes_bit_for_bit(athanor, data, tmp_path, settings):
    whole, cut = (Run(athanor, tmp_path / name, data) for name in ("whole", "cut") if not (tmp_path / name).mkdir())
    whole.train(*settings)
    assert cut.train(*settings, fault="train.after_step:kill@4", check=False).returncode == -signal.SIGKILL
    cut.train(*settings)
    assert cut.numbers() == whole.numbers()
    assert cut.hashes() == whole.hashes()
    assert cut.manifest()["state"].get("router_bias") == whole.manifest()["state"].get("router_bias")


def test_swipe_gives_every_expert_the_same_and_counts_what_it_moved(run):
    run.train("moe.balance=swipe")
    for line in run.metrics():
        assert line["expert_load_max_over_mean"] == line["expert_load_p95_over_mean"] == [1, 1]
        assert line["dead_experts"] == line["dropped_share"] == [0, 0]
        assert all(0 < share < 1 for share in line["reassigned_share"])
        assert abs(sum(line["layer_router_entropy"]) / 2 - line["router_entropy"]) < 1e-9


def test_capacity_drops_what_is_beyond_it(run):
    run.train("moe.balance=capacity", "moe.capacity_factor=1.0")
    for line in run.metrics():
        assert all(load <= 1 / (1 - share) + 1e-9 for load, share in zip(line["expert_load_max_over_mean"], line["dropped_share"]))
        assert all(0 < share < 1 for share in line["dropped_share"])
        assert line["reassigned_share"] == [0, 0]


def test_forced_uniform_is_even_whatever_the_router_says(run):
    run.train("moe.balance=forced_uniform")
    assert all(line["expert_load_max_over_mean"] == [1, 1] for line in run.metrics())


def test_recomputing_changes_no_count(athanor, data, tmp_path):
    plain, again = (Run(athanor, tmp_path / name, data) for name in ("plain", "again") if not (tmp_path / name).mkdir())
    settings = ["moe.balance=swipe", "moe.router_noise=0.5", "train.steps=3"]
    plain.train(*settings)
    again.train(*settings, 'parallelism.recompute=["moe"]')
    assert again.numbers() == plain.numbers()


def test_validation_counts_nothing(athanor, data, tmp_path):
    often, never = (Run(athanor, tmp_path / name, data) for name in ("often", "never") if not (tmp_path / name).mkdir())
    settings = ["moe.bias_update_rate=0.01", NO_MODELS]
    often.train(*settings, "train.validation_interval=1")
    never.train(*settings, "train.validation_interval=0")
    without = [{name: value for name, value in line.items() if name != "validation_loss"} for line in often.numbers()]
    assert without == [{name: value for name, value in line.items() if name != "validation_loss"} for line in never.numbers()]
    assert bias_of(often) == bias_of(never)


def test_the_bias_moves_by_its_rate_and_is_used_but_never_exported(run, athanor, tmp_path):
    run.train("moe.bias_update_rate=0.5", NO_MODELS)
    bias = [value for layer in bias_of(run) for value in layer]
    assert any(bias) and all((value / 0.5).is_integer() and abs(value) <= 8 * 0.5 for value in bias)
    done = athanor.run("export", run.folder, "--out", tmp_path / "hf", check=False)
    assert done.returncode == 2 and "router bias" in done.stderr and not (tmp_path / "hf").exists()
    generated = athanor.run("generate", run.folder, "--prompt", "the quick", "--max-new-tokens", 4, "--temperature", 0).stdout
    manifest = run.folder / "checkpoints" / "step-00000008" / "manifest.json"
    assert generated  # a checkpoint with a bias generates text
    assert "router_bias" in json.loads(manifest.read_text())["state"]


def test_a_run_with_a_bias_does_not_begin_to_write_models(run):
    run.train("moe.bias_update_rate=0.5", NO_MODELS)
    done = run.train("moe.bias_update_rate=0", "train.steps=9", check=False)
    assert done.returncode == 2 and "router bias" in done.stderr and "checkpoint.model_interval" in done.stderr


def test_shared_experts_are_refused_by_name_on_export(run, athanor, tmp_path):
    run.train("model.num_shared_experts=2", NO_MODELS)
    tensors = run.manifest()["tensors"]
    assert tensors["master/model.layers.1.mlp.shared_experts.down_proj.weight"] == [32, 48]
    done = athanor.run("export", run.folder, "--out", tmp_path / "hf", check=False)
    assert done.returncode == 2 and "model.num_shared_experts (2)" in done.stderr and "OlmoeForCausalLM" in done.stderr


def test_a_router_that_does_not_spread_is_named_in_the_first_step(run):
    done = run.train("model.initializer_range=1e-30", check=False)
    assert done.returncode == 2
    assert "model.layers.0.mlp.gate" in done.stderr and "scores of all 8 experts are equal" in done.stderr
    assert not list((run.folder / "checkpoints").iterdir())
