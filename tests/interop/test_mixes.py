"""Several sources and training phases in one run: shares, ledgers, resumes and refusals, as a user meets them."""
import json
import os
import random
import tomllib

import pytest
from runs import CONFIG, EOS, Run

WORDS = {"web": "the quick brown fox jumps over lazy dog", "code": "if else for while return int void class", "law": "whereas hereby shall party clause term"}


@pytest.fixture(scope="module")
def sources(athanor, tmp_path_factory):
    """Makes folders web, code, law with different words and one tokenizer; "short" has a handful of instances, "wide" twice the length."""
    folder = tmp_path_factory.mktemp("sources")
    rng = random.Random(3)
    for name, words in WORDS.items():
        rows = [json.dumps({"text": " ".join(rng.choices(words.split(), k=rng.randint(20, 60)))}) for _ in range(120)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "short.jsonl").write_text((folder / "law.jsonl").read_text()[:2000].rsplit("\n", 1)[0] + "\n")
    (folder / "wide.jsonl").write_text((folder / "law.jsonl").read_text())
    athanor.run("tokenizer", "train", "--vocab-size", 300, "--special-token", EOS, "--out", folder / "tokenizer.json",
                *(folder / f"{name}.jsonl" for name in WORDS))
    for name in [*WORDS, "short", "wide"]:
        athanor.run("prepare", "--tokenizer", folder / "tokenizer.json", "--seq-len", 64 if name == "wide" else 32, "--seed", 1,
                    "--validation-fraction", 0.1, "--out", folder / name, folder / f"{name}.jsonl")
    return folder


def mix(sources, **weights):
    return "".join(f'[[data.sources]]\npath = "{sources / name}"\nname = "{name}"\nweight = {weight}\n' for name, weight in weights.items())


def make_run(athanor, sources, folder, data, stages=""):
    """Makes the small run of runs.py over `data`, which is TOML for the [data] table."""
    folder.mkdir(exist_ok=True)
    run = Run(athanor, folder, "unused")
    run.config.write_text(run.config.read_text().replace('path = "unused"', "") + data + stages)
    return run


def ledger(run, step):
    """Returns name → instances drawn."""
    sources = run.manifest(step)["state"]["data"]["sources"].values()
    return {source["name"]: source["epoch"] * source["instances"] + source["next"] for source in sources}


def test_tokens_are_drawn_by_weight_and_the_ledger_and_metrics_say_so(athanor, sources, tmp_path):
    run = make_run(athanor, sources, tmp_path, mix(sources, web=5, code=2, law=1))
    said = run.train()
    assert ledger(run, 8) == {"web": 20, "code": 8, "law": 4}
    assert run.metrics()[-1]["tokens_drawn"] == {"web": 20 * 32, "code": 8 * 32, "law": 4 * 32}
    assert set(run.metrics()[-1]["validation_losses"]) == set(WORDS)
    assert "web: 62.5% of the tokens; 20 of its" in said.stderr


def test_a_mixed_run_killed_anywhere_resumes_bit_for_bit(athanor, sources, tmp_path):
    whole = make_run(athanor, sources, tmp_path / "whole", mix(sources, web=5, code=2, law=1))
    whole.train()
    cut = make_run(athanor, sources, tmp_path / "cut", mix(sources, law=1, code=2, web=5))
    assert cut.train(fault="train.after_step:kill@5", check=False).returncode != 0
    cut.train("data.num_threads=3")
    assert cut.numbers() == whole.numbers()
    assert cut.hashes() == whole.hashes()
    assert cut.manifest()["state"]["data"] == whole.manifest()["state"]["data"]


def test_the_mix_may_change_at_a_resume_and_no_source_repeats_a_sample(athanor, sources, tmp_path):
    run = make_run(athanor, sources, tmp_path, mix(sources, web=1, code=1))
    run.train("train.steps=4", "optimizer.warmup_steps=0")
    assert ledger(run, 4) == {"web": 8, "code": 8}
    run.config.write_text(run.config.read_text().split("[[data.sources]]")[0] + mix(sources, web=1, law=3))
    run.train("optimizer.warmup_steps=0")
    assert ledger(run, 8) == {"web": 12, "code": 8, "law": 12}


def test_a_source_that_was_prepared_anew_under_its_name_is_refused_at_a_resume(athanor, sources, tmp_path):
    run = make_run(athanor, sources, tmp_path, mix(sources, web=1))
    run.train("train.steps=3")
    run.config.write_text(run.config.read_text().replace(str(sources / "web"), str(sources / "law")))
    done = run.train(check=False)
    assert done.returncode == 2
    assert 'source "web"' in done.stderr and "holds other data than this run has drawn from" in done.stderr


STAGES = """
[[train.stages]]
name = "pretrain"
steps = 5
warmup_steps = 2
schedule = "constant"
[[train.stages.sources]]
path = "{web}"
weight = 3
[[train.stages.sources]]
path = "{code}"
weight = 1
[[train.stages]]
name = "long"
steps = 3
path = "{wide}"
global_batch_size = 2
lr = 4e-3
min_lr = 1e-3
schedule = "linear"
"""


def stages(sources):
    return STAGES.format(web=sources / "web", code=sources / "code", wide=sources / "wide")


def test_stages_have_their_own_mix_length_batch_and_schedule(athanor, sources, tmp_path):
    run = make_run(athanor, sources, tmp_path, "", stages(sources))
    run.train()
    lines = run.metrics()
    assert [line["stage"] for line in lines] == ["pretrain"] * 5 + ["long"] * 3
    assert [line["tokens"] for line in lines] == [4 * 32] * 5 + [2 * 64] * 3
    assert [line["lr"] for line in lines] == pytest.approx([5e-3, 1e-2, 1e-2, 1e-2, 1e-2, 3e-3, 2e-3, 1e-3])
    assert ledger(run, 8) == {str(sources / "web"): 15, str(sources / "code"): 5, str(sources / "wide"): 6}
    resolved = tomllib.loads((run.folder / "config.toml").read_text())
    assert [stage["seq_len"] for stage in resolved["train"]["stages"]] == [32, 64]
    assert resolved["train"]["steps"] == 8


@pytest.fixture(scope="module")
def whole_stages(athanor, sources, tmp_path_factory):
    """A run of stages that nothing stops."""
    run = make_run(athanor, sources, tmp_path_factory.mktemp("stages"), "", stages(sources))
    run.train("checkpoint.interval=1")
    return run


@pytest.mark.parametrize("after", [3, 5, pytest.param(6, marks=pytest.mark.slow)])
def test_a_run_of_stages_killed_anywhere_resumes_bit_for_bit(athanor, sources, tmp_path, whole_stages, after):
    cut = make_run(athanor, sources, tmp_path / "cut", "", stages(sources))
    assert cut.train("checkpoint.interval=1", fault=f"train.after_step:kill@{after}", check=False).returncode != 0
    cut.train("checkpoint.interval=1")
    assert cut.numbers() == whole_stages.numbers()
    assert cut.hashes() == whole_stages.hashes()


@pytest.mark.parametrize("weights, overrides, words", [
    ({}, [], "data.path is empty"),
    pytest.param({"web": 0.0}, [], "data.sources[0].weight: expected a finite number above 0", marks=pytest.mark.slow),
    ({"web": "inf"}, [], "data.sources[0].weight: expected a finite number above 0"),
    pytest.param({"web": "nan", "code": 1}, [], "data.sources[0].weight: expected a finite number above 0", marks=pytest.mark.slow),
    ({"web": 1, "short": 1}, ["train.global_batch_size=16"], 'source "short": its share of 50% takes 64 instances'),
    ({"web": 1, "wide": 1}, [], "instances of one length"),
    pytest.param({"web": 1, "missing": 1}, [], "missing", marks=pytest.mark.slow),
    ({"web": 1}, ["data.path=elsewhere"], "data.path and data.sources are both set"),
])
def test_a_mix_that_cannot_be_is_refused_before_step_1_and_leaves_no_run(athanor, sources, tmp_path, weights, overrides, words):
    run = make_run(athanor, sources, tmp_path, mix(sources, **weights))
    done = run.train(*overrides, check=False)
    assert done.returncode == 2
    assert words in done.stderr
    assert not run.folder.exists()


def test_a_cap_is_exact_and_ends_a_run_whose_batches_were_passed_over_in_time(athanor, sources, tmp_path):
    count = json.loads((sources / "short" / "manifest.json").read_text())["splits"]["train"]["instances"]
    run = make_run(athanor, sources, tmp_path, mix(sources, short=1) + "max_epochs = 1\n",
                   '[[faults.plan]]\nkind = "nan"\nstep = 2\nrank = 0\n')

    def train(steps):
        words = ["train.global_batch_size=1", "train.micro_batch_size=1", "train.validation_interval=0", "train.on_non_finite=skip",
                 "optimizer.warmup_steps=1", f"train.steps={steps}"]
        settings = [part for word in words for part in ("--set", word)]
        return athanor.run("train", run.config, *settings, check=False, env={**os.environ, "ATHANOR_ALLOW_FAULTS": "1"})

    done = train(count + 1)
    assert done.returncode == 2 and f"takes {count + 1} instances, and it has {count}:" in done.stderr, done.stderr
    assert not run.folder.exists()
    done = train(count)
    assert done.returncode == 2 and f"step {count - 1} is saved" in done.stderr, done.stderr
    assert done.stderr.count("since batches were passed over") == 2, "at once, and at the end"
    assert ledger(run, count - 1)["short"] == count
    run.config.write_text(run.config.read_text().replace("max_epochs = 1", "max_epochs = 1.5"))
    assert train(count).returncode == 0


def test_a_source_may_be_repeated_as_often_as_its_cap_says(athanor, sources, tmp_path):
    capped = mix(sources, web=1, short=1) + "max_epochs = 8\n"
    run = make_run(athanor, sources, tmp_path, capped)
    run.train("train.global_batch_size=16")
    short = next(s for s in run.manifest(8)["state"]["data"]["sources"].values() if s["name"] == "short")
    assert short["epoch"] >= 1 and ledger(run, 8)["short"] == 64


def test_extreme_weights_are_drawn_from_rarely_and_do_not_break(athanor, sources, tmp_path):
    run = make_run(athanor, sources, tmp_path, mix(sources, web=1e30, code=1e-30))
    run.train()
    assert ledger(run, 8) == {"web": 32, "code": 0}


def test_files_added_to_the_data_of_a_run_come_in_without_a_repeat(athanor, sources, tmp_path):
    athanor.run("prepare", "--tokenizer", sources / "tokenizer.json", "--seq-len", 32, "--seed", 1, "--validation-fraction", 0.1,
                "--out", tmp_path / "data", sources / "web.jsonl")
    run = Run(athanor, tmp_path, tmp_path / "data")
    run.train("train.steps=4")
    before, = run.manifest(4)["state"]["data"]["sources"].values()
    athanor.run("prepare", "--add", "--out", tmp_path / "data", sources / "law.jsonl")
    run.train()
    after, = run.manifest(8)["state"]["data"]["sources"].values()
    assert after["instances"] > before["instances"] and after["grown_from"] == [before["instances"]]
    assert (after["epoch"], after["next"], after["drawn"]) == (0, 32, 32)
