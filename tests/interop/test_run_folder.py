"""A run folder belongs to one run: it is resumed or refused, never overwritten, and does not change before a start's checks have passed."""
import hashlib
import json
import re
import os
import shutil
import signal
import subprocess
import time

import pytest
from runs import ENDLESS, Run, events, make_data


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


@pytest.fixture
def run(athanor, data, tmp_path):
    return Run(athanor, tmp_path, data)


def copy_of(made, run):
    """Gives the run a copy of a folder that several tests begin from."""
    shutil.copytree(made.folder, run.folder)
    return run


@pytest.fixture(scope="module")
def cut(athanor, data, tmp_path_factory):
    """A run that was killed while it saved, and has leftovers."""
    made = Run(athanor, tmp_path_factory.mktemp("cut"), data)
    made.train("train.steps=4", fault="checkpoint.before_commit:kill@2", check=False)
    return made


@pytest.fixture(scope="module")
def complete(athanor, data, tmp_path_factory):
    """A complete run, with models of steps 2, 4, 6 and 8."""
    made = Run(athanor, tmp_path_factory.mktemp("complete"), data)
    made.train("optimizer.schedule=constant", "checkpoint.model_interval=2")
    return made


@pytest.fixture(scope="module")
def with_models_alone(athanor, data, tmp_path_factory):
    """A run of four steps that keeps models alone."""
    made = Run(athanor, tmp_path_factory.mktemp("models"), data)
    made.train(*MODELS_ALONE, "train.steps=4", "optimizer.schedule=constant")
    return made


def contents(folder):
    """Returns path → hash of everything in the folder, including times of change.

    The lock of a killed process may go. Reports of the board are left out: the collector of the run before writes them while
    that run lives, and once more after it was killed. That a refused start writes none is a test by itself.
    """
    return {str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "lock" and path.parent != folder / "board"}


def errors(done):
    return [line for line in done.stderr.splitlines() if " E " in line]


def steps(run):
    return [line["step"] for line in run.metrics()]


MODELS_ALONE = ["checkpoint.interval=0", "checkpoint.model_interval=2"]


# ---- a refused start changes nothing


@pytest.fixture(scope="module")
def other_tokenizer(athanor, tmp_path_factory):
    """Prepares the same documents with another tokenizer."""
    folder = tmp_path_factory.mktemp("other")
    make_data(athanor, folder)
    athanor.run("tokenizer", "train", "--vocab-size", 290, "--special-token", "<|endoftext|>", "--out", folder / "other.json",
                folder / "docs.jsonl")
    athanor.run("prepare", "--tokenizer", folder / "other.json", "--seq-len", 32, "--seed", 1, "--validation-fraction", 0.1,
                "--out", folder / "other", folder / "docs.jsonl")
    return folder / "other"


@pytest.mark.parametrize("override,words", [
    pytest.param("model.hidden_size=64", ["another model", "hidden_size is 32 there, 64 here"], marks=pytest.mark.slow),
    ("model.rope_theta=5e5", ["rope_theta is 10000.0 there, 500000.0 here", "checkpoint.allow_model_change"]),
    pytest.param("train.seed=6", ["train.seed is 6"], marks=pytest.mark.slow),
    ("train.steps=100000", ["max_epochs"]),
    pytest.param("data.seq_len=16", ["data.seq_len (16)"], marks=pytest.mark.slow),
    ("OTHER_TOKENIZER", ["another tokenizer"]),
    ("checkpoint.resume=never", ["holds a run already"]),
    ("checkpoint.resume=nowhere", ["nowhere"]),
    pytest.param("model.hidden_size=4000000", ["GiB"], marks=pytest.mark.slow),
])
def test_a_refused_resume_changes_nothing_in_the_folder(run, cut, other_tokenizer, override, words):
    copy_of(cut, run)
    before = contents(run.folder)
    if override == "OTHER_TOKENIZER":
        override = f"data.path={other_tokenizer}"
    sources = []
    if override == "train.steps=100000":
        text = run.config.read_text().replace("path = ", "# path = ")
        data_path = [line.split('"')[1] for line in run.config.read_text().splitlines() if line.startswith("path = ")][0]
        run.config.write_text(text + f'\n[[data.sources]]\npath = "{data_path}"\nweight = 1.0\n')
        sources = ["optimizer.schedule=constant"]
    if override == "checkpoint.resume=nowhere":
        for name in ("checkpoints", "models"):
            shutil.rmtree(run.folder / name)
        before = contents(run.folder)
    done = run.train(override, *sources, check=False)
    assert done.returncode == 2, done.stderr
    assert len(errors(done)) == 1, done.stderr
    for word in words:
        assert word in errors(done)[0]
    assert contents(run.folder) == before


def test_a_refused_resume_writes_no_report_of_the_board(run, monkeypatch):
    with monkeypatch.context() as before:
        before.setenv("ATHANOR_BOARD", "off")
        run.train("train.steps=4")
    assert not (run.folder / "board").exists()
    # The start takes longer than a collector waits before its first report.
    done = run.train("train.seed=6", fault="lock.take:stall3", check=False)
    assert done.returncode == 2 and "train.seed is 6" in done.stderr, done.stderr
    assert not (run.folder / "board").exists()


def test_a_refused_start_leaves_no_folder(run):
    assert run.train("data.path=nowhere", check=False).returncode == 2
    assert not run.folder.exists()


def test_earlier_configurations_are_kept_and_what_changed_is_said(run):
    run.train("train.steps=3", "optimizer.lr=0.002")
    first = (run.folder / "config.toml").read_text()
    done = run.train("optimizer.lr=0.001", "optimizer.schedule=constant")
    for line in ["train.steps was 3, is 8", "optimizer.lr was 0.002, is 0.001", 'optimizer.schedule was "cosine", is "constant"']:
        assert line in done.stderr
    changes = [line for line in done.stderr.splitlines() if "learning rate goes from" not in line]
    assert len(re.findall(r" was .*, is ", "\n".join(changes))) == 3
    assert (run.folder / "configs" / "config-001.toml").read_text() == first
    again = run.train("optimizer.lr=0.001", "optimizer.schedule=constant")
    assert " was " not in again.stderr
    assert [path.name for path in (run.folder / "configs").iterdir()] == ["config-001.toml"]


def test_what_was_said_before_the_folder_was_open_is_in_its_log(run):
    run.train("train.steps=3")
    run.train("train.steps=3")
    log = (run.folder / "log" / "train.log").read_text()
    assert log.count("memory: about") == 2 and log.count("resumed from") == 1


def test_a_start_that_may_choose_its_device_says_once_which_it_took_and_why(run):
    def said(device):
        lines = run.train("train.steps=3", f"train.device={device}", f"train.run_dir={run.folder}-{device}").stderr.splitlines()
        return [line for line in lines if " device: " in line or "this run computes on the CPU: " in line]

    line, = said("auto")
    assert said("cpu") == []
    if "libtorch has no CUDA" in run.athanor.run("--version").stdout and not os.path.exists("/dev/nvidia0"):
        assert line.endswith(" I device: CPU (libtorch has no CUDA)")


def test_export_and_generate_refuse_a_tokenizer_that_is_not_the_runs(athanor, run, complete, tmp_path, other_tokenizer):
    copy_of(complete, run)
    (run.folder / "tokenizer.json").write_bytes((other_tokenizer / "tokenizer.json").read_bytes())
    for command in (["export", run.folder, "--out", tmp_path / "hf"], ["generate", run.folder, "--prompt", "the"]):
        done = athanor.run(*command, check=False)
        assert done.returncode == 2 and "is not the tokenizer that" in done.stderr, done.stderr
        assert str(run.folder / "tokenizer.json") in done.stderr
    assert not (tmp_path / "hf").exists()
    model = run.folder / "models" / "step-00000008"
    (model / "tokenizer.json").write_bytes((other_tokenizer / "tokenizer.json").read_bytes())
    done = athanor.run("generate", model, "--prompt", "the", check=False)
    assert done.returncode == 2 and "is not the tokenizer that" in done.stderr, done.stderr
    run.train("train.steps=9", "optimizer.schedule=constant")  # restores its own
    athanor.run("export", run.folder, "--out", tmp_path / "hf")


# ---- resumed or refused, never overwritten


def test_a_rerun_over_models_alone_goes_on_from_the_newest_and_says_that_moments_are_fresh(run, with_models_alone):
    copy_of(with_models_alone, run)
    before = contents(run.folder / "models")
    first = run.metrics()
    done = run.train(*MODELS_ALONE, "optimizer.schedule=constant")
    assert "FRESH MOMENTS" in done.stderr and "step-00000004" in done.stderr
    assert steps(run) == list(range(1, 9)) and run.metrics()[:4] == first
    assert contents(run.folder / "models").items() >= before.items()


def test_a_run_whose_checkpoints_were_emptied_goes_on_from_its_newest_model(run):
    run.train("train.steps=5")
    shutil.rmtree(run.folder / "checkpoints")
    done = run.train()
    assert "FRESH MOMENTS" in done.stderr and steps(run) == list(range(1, 9))
    assert [line["attempt"] for line in run.metrics()] == [1] * 5 + [2] * 3


@pytest.mark.parametrize("damage", ["model.safetensors", "athanor.json"])
def test_where_the_newest_model_is_damaged_the_one_before_is_named(run, with_models_alone, damage):
    copy_of(with_models_alone, run)
    path = run.folder / "models" / "step-00000004" / damage
    path.write_bytes(path.read_bytes()[:100])
    before = contents(run.folder)
    done = run.train(*MODELS_ALONE, "optimizer.schedule=constant", check=False)
    older = run.folder / "models" / "step-00000002"
    assert done.returncode == 2 and f'checkpoint.resume = "{older}"' in errors(done)[0], done.stderr
    assert contents(run.folder) == before
    run.train(*MODELS_ALONE, "optimizer.schedule=constant", f"checkpoint.resume={older}")
    assert steps(run) == list(range(1, 9))
    assert (run.folder / "models" / "abandoned-002" / "step-00000004").exists()


def test_a_run_that_lost_all_it_had_saved_is_refused(run, complete):
    copy_of(complete, run)
    for name in ("checkpoints", "models"):
        shutil.rmtree(run.folder / name)
    before = contents(run.folder)
    done = run.train(check=False)
    assert done.returncode == 2 and "checkpoints are gone" in done.stderr
    assert contents(run.folder) == before


def test_a_complete_run_that_saved_nothing_is_not_begun_again(run):
    run.train("checkpoint.interval=0", "checkpoint.model_interval=0")
    before = contents(run.folder)
    done = run.train(check=False)
    assert done.returncode == 2 and "kept nothing to continue from" in done.stderr
    assert contents(run.folder) == before


def test_a_run_cut_before_it_saved_begins_again_and_keeps_the_metrics_it_had(run):
    run.train(fault="train.after_step:kill@2", check=False)
    run.train()
    assert steps(run) == list(range(1, 9))
    kept = [json.loads(line)["step"] for line in (run.folder / "metrics-001.jsonl").read_text().splitlines()]
    assert kept == [1, 2]


def test_a_checkpoint_that_was_being_replaced_when_its_process_died_is_found(run):
    run.train("train.steps=3", "checkpoint.model_interval=0")
    checkpoints = run.folder / "checkpoints"
    (checkpoints / "step-00000003").rename(checkpoints / ".step-00000003.replaced")
    done = run.train("checkpoint.model_interval=0")
    assert "resumed from" in done.stderr and "at step 3" in done.stderr


# ---- going back


def test_a_run_goes_back_to_an_older_model_of_its_own_once_and_deletes_nothing(run, complete):
    copy_of(complete, run)
    before = contents(run.folder / "checkpoints"), contents(run.folder / "models")
    told = run.metrics()
    back = f"checkpoint.resume={run.folder / 'models' / 'step-00000004'}"
    settings = ["optimizer.schedule=constant", "optimizer.lr=0.005", back]
    done = run.train(*settings, "train.steps=7")
    assert "went back to step 4" in done.stderr and "fresh moments" in done.stderr
    assert steps(run) == [1, 2, 3, 4, 5, 6, 7]
    assert [line["attempt"] for line in run.metrics()] == [1] * 4 + [2] * 3
    assert [json.loads(line) for line in (run.folder / "metrics-001.jsonl").read_text().splitlines()] == told
    aside = {f"abandoned-002/{name}": what for name, what in before[0].items()}
    assert contents(run.folder / "checkpoints").items() >= aside.items()
    models = contents(run.folder / "models")
    assert {name for name in models if name.startswith("abandoned-002/step-00000008")}
    assert models.items() >= {name: what for name, what in before[1].items() if name < "step-00000005"}.items()
    # The ledger continues from the position of the model.
    assert run.metrics()[4]["tokens_seen"] == told[4]["tokens_seen"]
    gone = events(run, "went_back")[0]
    assert gone["step"] == 4 and gone["asked"] == "models/step-00000004" and len(gone["abandoned"]) >= 3
    # The same command again continues from what was saved since.
    done = run.train(*settings)
    assert "resumed from" in done.stderr and "at step 7" in done.stderr and "passed over" in done.stderr
    assert steps(run) == list(range(1, 9))


def test_a_run_that_went_back_and_was_cut_before_it_saved_goes_back_again(run, complete):
    copy_of(complete, run)
    back = f"checkpoint.resume={run.folder / 'models' / 'step-00000004'}"
    settings = ["optimizer.schedule=constant", "checkpoint.model_interval=0"]
    run.train(back, *settings, fault="train.after_step:kill@1", check=False)
    done = run.train(*settings)  # even without the path
    assert "at step 4" in done.stderr and steps(run) == list(range(1, 9))
    assert run.checkpoints()[-1] == "step-00000008"


def test_a_run_goes_back_to_an_older_full_checkpoint_of_its_own(run, complete):
    copy_of(complete, run)
    first = run.numbers()
    done = run.train(f"checkpoint.resume={run.folder}/checkpoints/step-00000006", "optimizer.schedule=constant")
    assert "went back to step 6" in done.stderr
    assert run.numbers() == first  # the same bits again
    assert "step-00000008" in [path.name for path in (run.folder / "checkpoints" / "abandoned-002").iterdir()]


def test_one_place_is_gone_back_to_with_several_learning_rates_and_once_with_each(run, complete):
    copy_of(complete, run)
    back = ["optimizer.schedule=constant", "checkpoint.model_interval=2", f"checkpoint.resume={run.folder / 'models' / 'step-00000004'}"]
    run.train(*back, "optimizer.lr=0.005")
    first = run.metrics()
    done = run.train(*back, "optimizer.lr=0.003")
    assert "once more, for another branch: optimizer.lr was 0.005, is 0.003" in done.stderr and "went back to step 4" in done.stderr
    assert steps(run) == list(range(1, 9)) and run.metrics()[5]["loss"] != first[5]["loss"]
    assert sorted(path.name for path in (run.folder / "models").glob("abandoned-*")) == ["abandoned-002", "abandoned-003"]
    for settings in (["optimizer.lr=0.003"], ["optimizer.lr=0.003", "train.steps=9", "train.num_threads=1"]):
        done = run.train(*back, *settings)
        assert "passed over" in done.stderr and "change what the new branch is to differ in" in done.stderr
    assert len(events(run, "went_back")) == 2 and steps(run) == list(range(1, 10))


def test_fresh_moments_are_given_to_a_return_to_a_full_checkpoint_and_not_to_its_resume(run, complete):
    copy_of(complete, run)
    back = [f"checkpoint.resume={run.folder}/checkpoints/step-00000006", "checkpoint.fresh_moments=true", "optimizer.schedule=constant"]
    done = run.train(*back, "train.steps=7")
    assert "fresh moments from step 6 on" in done.stderr
    assert events(run, "went_back")[0]["moments"] == "fresh"
    done = run.train(*back)
    assert "passed over" in done.stderr and events(run, "resume")[-1]["moments"] == "kept"


def test_fresh_groups_are_told_by_name_or_as_without_effect(run):
    fresh = ["optimizer.schedule=constant", "checkpoint.fresh_groups=[\"norm\"]"]
    assert "checkpoint.fresh_groups has no effect in this start: all moments begin at zero" in run.train(*fresh, "train.steps=6").stderr
    done = run.train(*fresh, "train.steps=7")
    assert done.stderr.count("checkpoint.fresh_groups has no effect in this start: the run continues from its newest checkpoint, ") == 1
    back = run.train(*fresh, f"checkpoint.resume={run.folder}/checkpoints/step-00000006", "train.steps=8").stderr
    assert "fresh moments from step 6 on, as checkpoint.fresh_groups asks" in back and "no effect" not in back


# ---- the model of a model-only folder


@pytest.fixture(scope="module")
def model(athanor, data, tmp_path_factory):
    """A model-only folder of four steps."""
    run = Run(athanor, tmp_path_factory.mktemp("first"), data)
    run.train("train.steps=4")
    return run.folder / "models" / "step-00000004"


@pytest.mark.parametrize("override,words", [
    ("model.intermediate_size=16", ["intermediate_size is 24 there, 16 here"]),
    pytest.param("model.num_attention_heads=8", ["num_attention_heads is 4 there, 8 here"], marks=pytest.mark.slow),
    pytest.param("model.hidden_size=64", ["hidden_size is 32 there, 64 here"], marks=pytest.mark.slow),
    ("model.rope_theta=5e5", ["rope_theta is 10000.0 there, 500000.0 here", 'checkpoint.allow_model_change to ["rope_theta"]']),
    ("model.vocab_size=330", ["vocab_size is 320 there, 330 here", '["vocab_size"]']),
])
def test_a_model_only_folder_of_another_model_is_refused_by_name(run, model, override, words):
    done = run.train(f"checkpoint.resume={model}", override, check=False)
    assert done.returncode == 2 and len(errors(done)) == 1, done.stderr
    for word in words:
        assert word in errors(done)[0]
    assert "bug" not in done.stderr and not run.folder.exists()


def test_a_longer_rope_is_asked_for_and_named(run, model):
    change = ["model.rope_theta=5e5", "model.rope_scaling.rope_type=linear", "model.rope_scaling.factor=2.0"]
    done = run.train(f"checkpoint.resume={model}", *change, 'checkpoint.allow_model_change=["rope_theta"]', check=False)
    assert done.returncode == 2 and "rope_scaling.factor" in done.stderr and "rope_theta" not in errors(done)[0].split(";")[0]
    done = run.train(f"checkpoint.resume={model}", *change, 'checkpoint.allow_model_change=["rope_theta", "rope_scaling"]')
    assert "rope_theta is 10000.0 there, 500000.0 here" in done.stderr and "rope_scaling.factor is 1.0 there, 2.0 here" in done.stderr
    run.train(*change, "train.steps=9", "optimizer.schedule=constant")  # its own checkpoints are of the changed model


def test_what_may_not_change_is_refused_by_name(run, model):
    done = run.train(f"checkpoint.resume={model}", 'checkpoint.allow_model_change=["hidden_size"]', check=False)
    assert done.returncode == 2 and "checkpoint.allow_model_change" in done.stderr and "hidden_size" in done.stderr


def test_new_rows_of_a_vocabulary_begin_as_a_fresh_models(athanor, data, tmp_path, model):
    from safetensors.torch import load_file
    longer = ["model.vocab_size=330", "optimizer.lr=1e-30", "optimizer.min_lr=0", "optimizer.weight_decay=0", "checkpoint.model_dtype=float32",
              "train.dtype=float32"]
    for name in ("grown", "fresh"):
        (tmp_path / name).mkdir()
    grown, fresh = Run(athanor, tmp_path / "grown", data), Run(athanor, tmp_path / "fresh", data)
    done = grown.train(f"checkpoint.resume={model}", *longer, 'checkpoint.allow_model_change=["vocab_size"]', "train.steps=5")
    assert "vocab_size is 320 there, 330 here" in done.stderr
    fresh.train(*longer, "train.steps=5")
    old, new, begun = (load_file(folder / "model.safetensors") for folder in
                       (model, grown.folder / "models" / "step-00000005", fresh.folder / "models" / "step-00000005"))
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        assert (new[name][:320] == old[name].float()).all(), name
        assert (new[name][320:] == begun[name][320:]).all() and new[name][320:].any(), name


# ---- two processes


class Background:
    """A run that continues until the end of the test."""

    def __init__(self, run, *overrides, env=None):
        settings = [part for override in (*ENDLESS, "train.num_threads=1", *overrides) for part in ("--set", override)]
        self.process = subprocess.Popen([str(run.athanor.path), "train", str(run.config), *settings], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True, env={**os.environ, **(env or {})})
        assert self.process.stdout.readline().startswith("step: ")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.mark.parametrize("environment", [{}, {"ATHANOR_FAULT": "lock.take:eio@1+"}])
def test_a_second_run_in_one_folder_is_refused_and_told_who_holds_it(run, environment):
    with Background(run, env=environment) as first:
        before = {name for name in contents(run.folder)}
        done = run.train(*ENDLESS, check=False, fault=environment.get("ATHANOR_FAULT"))
        assert done.returncode == 2 and f"process {first.process.pid} on {os.uname().nodename}" in done.stderr, done.stderr
        assert {name for name in contents(run.folder)} == before
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    assert (run.folder / "lock").exists()
    run.train(*ENDLESS, "train.steps=3", fault=environment.get("ATHANOR_FAULT"))  # a lock ends with its process
    assert not (run.folder / "lock").exists()


def test_a_lease_of_another_machine_is_taken_over_once_it_has_stood_still(run):
    run.folder.mkdir()
    lease = "host node7\npid 4711\nstarted 1\nboot_id b\npid_namespace p\ninterval_ms 100\nbeat {}\n"
    (run.folder / "lock").write_text(lease.format(1))
    begin = time.monotonic()
    done = run.train("train.steps=3", fault="lock.take:eio@1+")
    assert "watching it" in done.stderr and time.monotonic() - begin > 0.5


def test_export_and_generate_read_beside_a_run(athanor, run, tmp_path):
    run.train("train.steps=4", "optimizer.schedule=constant")
    with Background(run):
        athanor.run("export", run.folder, "--out", tmp_path / "hf")
        athanor.run("generate", run.folder, "--prompt", "the", "--max-new-tokens", 1)


# ---- exit codes, last words, history


def last_words(run):
    return json.loads((run.folder / "log" / "last-words.json").read_text())


def test_a_signal_on_a_full_disk_ends_with_11_and_says_that_nothing_was_saved(run):
    done = run.train(fault="train.after_step:term@2,checkpoint.piece:enospc@1+", check=False)
    assert done.returncode == 11, done.stderr
    assert "NOT saved" in errors(done)[-1] and "to continue" not in done.stderr
    words = last_words(run)
    assert (words["cause"], words["exit_code"], words["rank"], words["step"]) == ("not saved", 11, 0, 3)
    assert events(run)[-1]["event"] == "end" and events(run)[-1]["exit_code"] == 11
    done = run.train()
    assert done.returncode == 0 and not (run.folder / "log" / "last-words.json").exists()
    assert (run.folder / "log" / "last-words-001.json").exists()


def test_a_signal_where_nothing_is_ever_saved_ends_with_11(run):
    done = run.train("checkpoint.interval=0", "checkpoint.model_interval=0", fault="train.after_step:term@2", check=False)
    assert done.returncode == 11 and "nothing was saved" in done.stderr


def test_a_signal_where_models_alone_are_kept_saves_one(run):
    done = run.train("checkpoint.interval=0", "checkpoint.model_interval=100", fault="train.after_step:term@2", check=False)
    assert done.returncode == 143 and "fresh moments" in done.stderr
    assert (run.folder / "models" / "step-00000003").exists()


def test_a_final_model_that_could_not_be_written_ends_with_11_and_is_written_by_the_next_start(run):
    settings = ["checkpoint.model_interval=8"]
    done = run.train(*settings, fault="train.save:enospc@3", check=False)  # after the checkpoints of steps 3 and 6
    assert done.returncode == 11 and "its last model is not on disk: free some space in" in done.stderr
    done = run.train(*settings, fault="train.save:eio", check=False)
    assert done.returncode == 11 and "is not on disk: look at the file system of" in done.stderr and "free some space" not in done.stderr
    run.train(*settings)
    assert (run.folder / "models" / "step-00000008" / "config.json").exists()


def test_numbers_that_are_not_finite_end_with_76_and_name_the_tensor(run):
    done = run.train("optimizer.lr=1e30", "optimizer.weight_decay=0", "optimizer.min_lr=0", "optimizer.warmup_steps=0", check=False)
    assert done.returncode == 76, done.stderr
    words = last_words(run)
    assert words["cause"] == "numbers" and words["step"] >= 2 and "loss is" in words["text"]
    assert words["phase"] == "step" and words["attempt"] == 1


def test_events_tell_a_runs_history_and_metrics_the_attempt(run):
    run.train(fault="train.after_step:term@2", check=False)
    run.train(fault="train.after_step:kill@2", check=False)
    run.train()
    told = [(line["event"], line["attempt"], line["step"]) for line in events(run)]
    assert told == [("start", 1, 0), ("save", 1, 3), ("stop", 1, 3), ("end", 1, 3),
                    ("resume", 2, 3), ("save", 2, 4),
                    ("resume", 3, 3), ("save", 3, 4), ("save", 3, 6), ("save", 3, 8), ("save", 3, 8), ("end", 3, 8)]
    assert [line["attempt"] for line in run.metrics()] == [1, 1, 1, 3, 3, 3, 3, 3]
    assert events(run, "end")[0]["exit_code"] == 143 and events(run, "end")[1]["exit_code"] == 0
    assert events(run, "resume")[0]["from"].endswith("checkpoints/step-00000003")
    assert [line["kind"] for line in events(run, "save")][-2:] == ["model", "checkpoint"]


# ---- athanor config


def test_config_prints_the_model_that_model_from_names(athanor, model, tmp_path):
    config = tmp_path / "from.toml"
    config.write_text(f'[model]\nfrom = "{model}"\n')
    shown = athanor.run("config", config, "--brief").stdout
    assert "hidden_size = 32\n" in shown and "num_experts = 8\n" in shown and f'from = "{model}"' in shown
    written = tmp_path / "written.toml"
    written.write_text(shown.replace(f'from = "{model}"', 'from = ""').partition("\n# ")[0])
    assert athanor.run("config", written, "--brief").stdout.rpartition("# ")[2] == shown.rpartition("# ")[2]  # parameters
    assert "rank" in athanor.run("config", config, "--ranks", 2, "--set", "data.seq_len=32").stdout
    done = athanor.run("config", config, "--set", "model.from=nowhere", check=False)
    assert done.returncode == 2 and "there is no folder nowhere" in done.stderr
    done = athanor.run("config", config, "--set", "model.rope_theta=5.0")
    assert "rope_theta = 10000.0" in done.stdout and "not used" in done.stderr


def test_an_empty_configuration_file_is_the_defaults(athanor, tmp_path):
    (tmp_path / "empty.toml").write_text("")
    assert athanor.run("config", tmp_path / "empty.toml").stdout == athanor.run("config").stdout


def test_a_place_to_resume_from_that_is_nothing_is_refused_though_the_run_has_saved(run, complete):
    copy_of(complete, run)
    before = contents(run.folder)
    for place in (str(run.folder.parent / "rnu" / "checkpoints" / "step-00000006"), "lastest"):
        done = run.train("train.steps=9", f"checkpoint.resume={place}", check=False)
        assert done.returncode == 2 and "is neither a checkpoint" in done.stderr, done.stderr
    assert contents(run.folder) == before


def test_a_run_that_was_moved_is_not_begun_again_in_its_old_place(athanor, run):
    run.train()
    moved = run.folder.parent / "moved"
    run.folder.rename(moved)
    done = athanor.run("train", moved / "config.toml", check=False)
    assert done.returncode == 2 and f"--set train.run_dir={moved}" in done.stderr, done.stderr
    assert not run.folder.exists()
    athanor.run("train", moved / "config.toml", "--set", f"train.run_dir={moved}", "--set", "train.steps=9")
    assert (moved / "checkpoints" / "step-00000009").exists()
