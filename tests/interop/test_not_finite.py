"""Checkpoints whose hashes are right and whose numbers are not finite: which one a start takes, and what becomes of the others."""
import json
import shutil
import struct

import pytest
from runs import Run, events, make_data


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def whole(athanor, data, tmp_path_factory):
    """A run without interruption. Its checkpoints are of steps 3, 6 and 8."""
    run = Run(athanor, tmp_path_factory.mktemp("whole"), data)
    run.train("checkpoint.keep=3")
    return run


@pytest.fixture
def run(whole, athanor, data, tmp_path):
    """A copy of that run."""
    run = Run(athanor, tmp_path, data)
    shutil.copytree(whole.folder, run.folder)
    return run


def change(run, step, tensor="exp_avg/model.norm.weight", element=3, value="nan"):
    """Replaces an element of a checkpoint; its hashes are right."""
    folder, out = run.folder / "checkpoints" / f"step-{step:08}", run.folder.parent / "changed"
    tool = type(run.athanor)(run.athanor.path.with_name("checkpoint_tool"))
    tool.run("change", folder, out, tensor, element, value)
    shutil.rmtree(folder)
    out.rename(folder)


def change_model(folder, tensor, element, bits):
    """Replaces an element of a model in bfloat16."""
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    entry = json.loads(content[8:begin])[tensor]
    assert entry["dtype"] == "BF16"
    at = begin + entry["data_offsets"][0] + 2 * element
    content[at:at + 2] = struct.pack("<H", bits)
    file.write_bytes(content)


def damage(run, step):
    file = next((run.folder / "checkpoints" / f"step-{step:08}").glob("*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def train(run, *overrides, **options):
    return run.train("checkpoint.keep=3", *overrides, **options)


@pytest.mark.parametrize("tensor, value", [("master/model.embed_tokens.weight", "nan"), ("exp_avg_sq/lm_head.weight", "inf"),
                                           ("exp_avg/model.norm.weight", "-inf")])
def test_one_that_is_not_finite_is_put_aside_and_the_older_one_taken(run, whole, tensor, value):
    change(run, 8, tensor, 3, value)
    before = contents(run.folder / "checkpoints" / "step-00000008")
    done = train(run)
    index = [3] if "norm" in tensor else [0, 3]
    assert f"element {index} of {tensor} is {value}" in done.stderr and "resumed from" in done.stderr and "step 6" in done.stderr
    assert run.checkpoints() == ["not-finite-step-00000008", "step-00000003", "step-00000006", "step-00000008"]
    assert run.numbers() == whole.numbers() and run.hashes() == whole.hashes()
    aside = run.folder / "checkpoints" / "not-finite-step-00000008"
    after = contents(aside)
    reason = json.loads(after.pop(aside / "not-finite.json"))
    assert (reason["tensor"], reason["element"], reason["value"]) == (tensor, index, value) and reason["time"] > 1.7e9
    assert sorted(after.values()) == sorted(before.values())
    lines = [line for line in events(run) if line["attempt"] == 2]
    told, resumed = lines[:2]
    assert (told["event"], told["step"], told["tensor"], told["element"], told["value"]) == ("not_finite", 6, tensor, index, value)
    assert told["path"] == str(aside)
    assert resumed["event"] == "resume" and resumed["from"].endswith("step-00000006")


def test_what_was_put_aside_stays_and_is_not_taken_again(run):
    for _ in range(2):
        change(run, 8)
        train(run)
    train(run, "train.steps=17", "checkpoint.keep=1")
    assert run.checkpoints() == ["not-finite-2-step-00000008", "not-finite-step-00000008", "step-00000017"]
    assert len(events(run, "not_finite")) == 2


def test_a_folder_with_nothing_but_one_that_was_put_aside_is_no_new_run(run):
    change(run, 8)
    train(run)
    for name in ["events.jsonl", "metrics.jsonl", "tokenizer.json", "matmul.json"]:
        (run.folder / name).unlink()
    for folder in ["models", "log", *("checkpoints/" + name for name in run.checkpoints() if name.startswith("step"))]:
        shutil.rmtree(run.folder / folder)
    done = train(run, check=False)
    assert done.returncode == 2 and "holds checkpoints/not-finite-step-00000008 of a run" in done.stderr


def test_two_in_a_row_end_the_start_with_2_and_nothing_is_renamed(run):
    change(run, 6)
    change(run, 8)
    before = contents(run.folder)
    done = train(run, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 2 and "step-00000006 is not finite" in last and "step-00000008 is not finite" in last
    assert contents(run.folder) == before
    done = train(run, f"checkpoint.resume={run.folder}/checkpoints/step-00000003")  # what the line asks for
    assert "resumed from" in done.stderr and "step 3" in done.stderr


def test_damage_is_no_evidence_that_two_in_a_row_are_not_finite(run, whole):
    change(run, 8)
    damage(run, 6)
    train(run)
    assert run.checkpoints()[0] == "not-finite-step-00000008" and events(run, "resume")[-1]["from"].endswith("step-00000003")
    assert run.hashes() == whole.hashes()


def test_a_start_that_another_check_refuses_renames_nothing(run, data):
    change(run, 8)
    before = contents(run.folder)
    config = run.config.read_text()
    capped = config.replace(f'[data]\npath = "{data}"', f'[[data.sources]]\npath = "{data}"\nweight = 1\nmax_epochs = 1')
    assert capped != config
    run.config.write_text(capped)
    done = train(run, "train.steps=1000", check=False)  # there are not enough documents
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 2 and "step-00000008 is not finite" in done.stderr and "not finite" not in last
    assert contents(run.folder) == before


@pytest.mark.parametrize("place", ["inside", "elsewhere"])
def test_one_that_resume_names_is_refused_by_name_and_keeps_it(run, athanor, data, tmp_path, place):
    change(run, 6)
    named = run.folder / "checkpoints" / "step-00000006"
    before = contents(run.folder)
    other = run
    if place == "elsewhere":
        (tmp_path / "other").mkdir()
        other = Run(athanor, tmp_path / "other", data)
    done = train(other, f"checkpoint.resume={named}", check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 2 and f"{named} is not finite" in last and "element [3] of exp_avg/model.norm.weight is nan" in last
    assert contents(run.folder) == before and (place == "inside" or not other.folder.exists())


@pytest.mark.parametrize("field, value, bits", [
    ("checkpoint.resume", "inf", 0x7f80), ("model.from", "nan", 0x7fc0), ("model.from", "-inf", 0xff80),
    *(pytest.param(*each, marks=pytest.mark.slow)
      for each in [("checkpoint.resume", "nan", 0x7fc0), ("checkpoint.resume", "-inf", 0xff80), ("model.from", "inf", 0x7f80)])])
def test_a_model_that_is_named_and_is_not_finite_is_refused_and_keeps_its_name(run, athanor, data, tmp_path, field, value, bits):
    model = run.folder / "models" / "step-00000004"
    change_model(model, "model.embed_tokens.weight", 70, bits)
    change_model(model, "model.norm.weight", 3, bits)
    before = contents(run.folder)
    (tmp_path / "other").mkdir()
    other = Run(athanor, tmp_path / "other", data)
    for each in [other] if field == "model.from" else [other, run]:
        done = train(each, f"{field}={model}", check=False)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 2 and f"{model} is not finite: element [2, 6] of model.embed_tokens.weight is {value}" in last, last
    assert contents(run.folder) == before and not other.folder.exists()


def test_the_newest_model_that_is_not_finite_is_refused_and_the_one_before_it_named(athanor, data, tmp_path):
    run = Run(athanor, tmp_path, data)
    run.train("checkpoint.interval=0")
    change_model(run.folder / "models" / "step-00000008", "model.norm.weight", 3, 0x7fc0)
    before = contents(run.folder)
    done = run.train("checkpoint.interval=0", "train.steps=12", check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 2 and "step-00000008 is not finite: element [3] of model.norm.weight is nan" in last, last
    assert f'set checkpoint.resume = "{run.folder}/models/step-00000004"' in last
    assert contents(run.folder) == before


def test_moments_that_are_not_loaded_may_be_anything(run):
    change(run, 8)
    done = train(run, f"checkpoint.resume={run.folder}/checkpoints/step-00000008", "checkpoint.fresh_moments=true", "train.steps=10")
    assert "resumed from" in done.stderr and "step-00000010" in run.checkpoints()


def test_a_first_step_that_is_not_finite_condemns_no_checkpoint(run):
    change(run, 8, "master/model.norm.weight", 3, "3e38")  # finite, and too large for a loss
    for _ in range(2):
        done = train(run, "train.steps=12", check=False)
        assert done.returncode == 76 and "resumed from" in done.stderr and "step 9" in done.stderr.strip().splitlines()[-1], done.stderr
    assert run.checkpoints() == ["step-00000003", "step-00000006", "step-00000008"] and not events(run, "not_finite")


def test_a_model_that_is_not_finite_generates_nothing(run, whole, athanor):
    for folder in [run.folder / "models" / "step-00000004", run.folder]:
        if folder == run.folder:
            change(run, 8, "master/model.norm.weight", 3, "nan")
        else:
            change_model(folder, "model.norm.weight", 3, 0x7fc0)
        done = athanor.run("generate", folder, "--prompt", "the", "--max-new-tokens", 4, check=False)
        assert done.returncode == 2 and done.stdout == "" and f"{folder}: model.norm.weight is not finite" in done.stderr, done.stderr


def test_a_gradient_that_is_exactly_zero_is_named_and_told_again_at_the_end(athanor, data, tmp_path):
    run = Run(athanor, tmp_path, data, family="llama")
    done = run.train("optimizer.name=sgd", "optimizer.lr=1e12", "optimizer.weight_decay=0", "optimizer.warmup_steps=0",
                     "checkpoint.interval=0", "checkpoint.model_interval=0", "train.validation_interval=0")
    (event,) = events(run, "stuck")
    assert "the gradient is exactly zero" in event["text"] and event["text"] in done.stderr
    assert f"the gradient has been exactly zero since step {event['step']}" in done.stderr
