"""`athanor checkpoint` lists, verifies, compares and removes the checkpoints of a run, and answers bad ones in one line."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from runs import ENDLESS, Run, make_data


@pytest.fixture(scope="module")
def trained(athanor, tmp_path_factory):
    """A run of eight steps with three checkpoints and two models. Tests change copies of it."""
    folder = tmp_path_factory.mktemp("checkpoints")
    data = make_data(athanor, folder)
    run = Run(athanor, folder, data)
    run.data = data
    run.train("checkpoint.keep=3")
    return run


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained.folder, tmp_path / "run")
    return tmp_path / "run"


def step_of(run, step, kind="checkpoints"):
    return run / kind / f"step-{step:08}"


def listing(run):
    """Every file with its bytes and its time."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.rglob("*") if path.is_file()}


def flip(path, at=-1):
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def refused(athanor, *words, code=2):
    """Runs a command that is refused; returns its line."""
    done = athanor.run("checkpoint", *words, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_ls_lists_newest_first_what_the_run_holds_and_changes_nothing(athanor, run):
    (run / "checkpoints" / ".step-00000009.tmp").mkdir()
    (run / "checkpoints" / "abandoned-002").mkdir()
    step_of(run, 3).rename(run / "checkpoints" / "abandoned-002" / "step-00000003")
    before = listing(run)
    rows = json.loads(athanor.run("checkpoint", "ls", run, "--json").stdout)
    assert [(row["step"], row["kind"], row["state"]) for row in rows] == [
        (9, "full", "unfinished"), (8, "full", "there"), (8, "model", "there"), (6, "full", "there"), (4, "model", "there"),
        (3, "full", "abandoned")]
    for row in rows[1:]:
        files = [path for path in (run / row["path"]).rglob("*") if path.is_file()]
        assert row["bytes"] == sum(path.stat().st_size for path in files) and row["files"] == len(files)
        assert row["tokens_seen"] == row["step"] * 4 * 32 and "problem" not in row
        assert abs(row["written"] - time.time()) < 3600
    assert rows[1]["ranks"] == 1 and rows[1]["athanor"]["version"] == "0.1.0"
    text = athanor.run("checkpoint", "ls", run).stdout.splitlines()
    assert len(text) == 7 and text[2].split()[:3] == ["8", "full", "there"] and text[2].endswith("checkpoints/step-00000008")
    assert listing(run) == before


def test_ls_also_takes_a_folder_of_checkpoints_and_a_single_one(athanor, run):
    steps = lambda path: [row["step"] for row in json.loads(athanor.run("checkpoint", "ls", path, "--json").stdout)]
    assert steps(run / "checkpoints") == [8, 6, 3] and steps(run / "models") == [8, 4] and steps(step_of(run, 6)) == [6]
    assert steps(step_of(run, 4, "models")) == [4]


def test_a_damaged_manifest_is_a_line_of_its_own_and_the_others_are_listed(athanor, run):
    (step_of(run, 6) / "manifest.json").write_text("{")
    text = athanor.run("checkpoint", "ls", run).stdout
    assert len(text.splitlines()) == 7 and "cannot be read" in text and "not a manifest" in text


def test_verify_names_the_damaged_tensor_file_and_bytes_and_ends_with_2(athanor, run):
    done = athanor.run("checkpoint", "verify", run)
    assert [line.split(": ")[1] for line in done.stdout.splitlines()] == ["ok"] * 5
    before = listing(run)
    damaged = step_of(run, 6) / "pieces-00000.safetensors"
    flip(damaged)
    for threads in (1, 2):
        done = athanor.run("checkpoint", "verify", run, "--threads", threads, check=False)
        assert done.returncode == 2
        assert [": ok: " in line for line in done.stdout.splitlines()] == [True, True, False, True, True]
        line = done.stdout.splitlines()[2]
        assert f"{step_of(run, 6)}: damaged: {damaged}" in line and "tensor " in line and "bytes " in line
        assert "1 of 5 are damaged" in done.stderr and len(done.stderr.splitlines()) == 1
    flip(damaged)
    assert {path: content for path, (_, content) in listing(run).items()} == {path: content for path, (_, content) in before.items()}


def test_verify_finds_what_a_model_without_hashes_can_show(athanor, run):
    weights = step_of(run, 8, "models") / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    (step_of(run, 4, "models") / "model.safetensors").unlink()
    done = athanor.run("checkpoint", "verify", run / "models", check=False)
    assert done.returncode == 2 and "2 of 2 are damaged" in done.stderr
    assert "truncated" in done.stdout.splitlines()[0] and "has neither model.safetensors nor" in done.stdout.splitlines()[1]


def test_a_folder_without_checkpoints_is_listed_as_empty_and_verifies_nothing(athanor, tmp_path):
    (tmp_path / "config.toml").touch()
    assert athanor.run("checkpoint", "ls", tmp_path).stdout == f"{tmp_path} holds no checkpoint and no model\n"
    assert "nothing to verify" in refused(athanor, "verify", tmp_path)


def test_prepared_data_is_no_damaged_checkpoint_and_nothing_advises_to_delete_it(athanor, trained):
    done = athanor.run("checkpoint", "verify", trained.data, check=False)
    assert done.returncode == 2 and "is that of prepared data; verify prepared data with athanor data verify" in done.stderr
    assert "rm" not in (done.stdout + done.stderr).split() and "damaged" not in done.stdout + done.stderr


def test_rm_and_diff_take_a_step_with_and_without_zeros_and_a_path(athanor, run):
    assert "equal" in athanor.run("checkpoint", "diff", run / "step-6", step_of(run, 6)).stdout
    assert athanor.run("checkpoint", "diff", run / "checkpoints/step-6", "step-00000006").stdout.startswith("equal")
    for step, named in ((3, "step-3"), (6, step_of(run, 6))):
        assert f"removed {step_of(run, step)}" in athanor.run("checkpoint", "rm", run, named).stdout
    assert "many is no step: expected one such as 40, step-00000040 or" in refused(athanor, "rm", run, "many")


def test_diff_ends_with_0_for_the_same_and_names_what_differs_with_1(athanor, run):
    same = athanor.run("checkpoint", "diff", step_of(run, 6), step_of(run, 6)).stdout
    assert same == "equal: 0 of 81 tensors differ; values that differ: 0\n"
    done = athanor.run("checkpoint", "diff", step_of(run, 3), step_of(run, 6), "--json", check=False)
    assert done.returncode == 1 and done.stderr == ""
    found = json.loads(done.stdout)
    assert not found["equal"] and len(found["tensors"]) == 81
    assert {"path": "state.step", "a": "3", "b": "6"} in found["values"]
    assert not any(value["path"].startswith(("model", "state.config")) for value in found["values"])
    text = athanor.run("checkpoint", "diff", step_of(run, 3), step_of(run, 6), check=False).stdout
    assert "state.tokens_seen: 384 and 768" in text
    # How many loads of experts are the same after both steps is a matter of the processor's last bits.
    assert text.endswith(f"different: 81 of 81 tensors differ; values that differ: {len(found['values'])}\n")


def test_diff_agrees_with_numpy(athanor, run):
    numpy = pytest.importorskip("numpy")

    def tensor(step, name):
        manifest = json.loads((step_of(run, step) / "manifest.json").read_text())
        piece, = [piece for piece in manifest["pieces"] if piece["tensor"] == name]
        content = (step_of(run, step) / piece["file"]).read_bytes()
        count = piece["flat_end"] - piece["flat_begin"]
        return numpy.frombuffer(content, "<f4", count, piece["byte_offset"]).reshape(manifest["tensors"][name])

    name = "master/model.layers.1.mlp.experts.down_proj.weight"
    a, b = tensor(3, name).astype(numpy.float64), tensor(6, name).astype(numpy.float64)
    done = athanor.run("checkpoint", "diff", step_of(run, 3), step_of(run, 6), "--json", "--tensors", name, check=False)
    row, = json.loads(done.stdout)["tensors"]
    assert row["differing"] == (a != b).sum() and row["elements"] == a.size
    assert row["largest_absolute"] == abs(a - b).max()
    assert row["largest_relative"] == (abs(a - b) / numpy.maximum(abs(a), abs(b)))[a != b].max()
    index = tuple(row["first"]["index"])
    assert index == tuple(numpy.argwhere(a != b)[0]) and row["first"]["a"] == a[index] and row["first"]["b"] == b[index]


def test_diff_of_two_layouts_is_equal(athanor, run, tmp_path):
    tool = athanor.path.with_name("checkpoint_tool")
    subprocess.run([tool, "reslice", step_of(run, 6), tmp_path / "resliced"], check=True)
    # The tool writes no state.
    text = athanor.run("checkpoint", "diff", step_of(run, 6), tmp_path / "resliced", "--tensors", "*/*").stdout
    assert text == "equal: 0 of 81 tensors differ\n"


def test_diff_refuses_what_is_no_full_checkpoint(athanor, run):
    for other in (step_of(run, 4, "models"), run, run / "nowhere"):
        assert f"{other}: expected a full checkpoint" in refused(athanor, "diff", step_of(run, 6), other)


def test_rm_removes_what_is_named_and_the_run_continues(athanor, run, trained):
    done = athanor.run("checkpoint", "rm", run, 3, 6)
    assert [line.split(" (")[0] for line in done.stdout.splitlines()[:2]] == [f"removed {step_of(run, 3)}", f"removed {step_of(run, 6)}"]
    assert done.stdout.splitlines()[2].startswith("freed 1.")
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000008"]
    done = athanor.run("checkpoint", "rm", run, "4", "--models")
    assert [path.name for path in (run / "models").iterdir()] == ["step-00000008"]
    assert not (run / "lock").exists()
    athanor.run("train", trained.config, "--set", f"train.run_dir={run}", "--set", "train.steps=9")


def test_rm_refuses_the_newest_that_is_whole(athanor, run):
    before = listing(run)
    assert "step-00000008 is the newest checkpoint that is whole" in refused(athanor, "rm", run, 6, 8)
    assert "step-00000008 is the newest model" in refused(athanor, "rm", run, 8, "--models")
    assert "there are 8, 6, 3" in refused(athanor, "rm", run, 7)
    assert listing(run) == before
    athanor.run("checkpoint", "rm", run, 8, "--force")
    assert not step_of(run, 8).exists()


def test_rm_is_killed_half_way_and_nothing_looks_like_a_checkpoint(athanor, run, trained):
    environment = {**os.environ, "ATHANOR_FAULT": "checkpoint.remove:kill"}
    done = athanor.run("checkpoint", "rm", run, 3, check=False, env=environment)
    assert done.returncode == -signal.SIGKILL
    rows = json.loads(athanor.run("checkpoint", "ls", run, "--json").stdout)
    assert [row["state"] for row in rows if row["step"] == 3] == ["unfinished"]
    athanor.run("train", trained.config, "--set", f"train.run_dir={run}", "--set", "train.steps=9")
    assert not list((run / "checkpoints").glob(".step-*"))


def test_a_run_that_is_training_can_be_listed_and_nothing_of_it_removed(athanor, run, trained):
    settings = [part for each in [*ENDLESS, f"train.run_dir={run}", "checkpoint.interval=20", "checkpoint.keep=1"] for part in ("--set", each)]
    training = subprocess.Popen([athanor.path, "train", trained.config, *settings], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.time() + 300
        while not (run / "lock").exists() and time.time() < deadline:
            time.sleep(0.05)
        for _ in range(20):  # its checkpoints come and go meanwhile
            assert json.loads(athanor.run("checkpoint", "ls", run, "--json").stdout)
        line = refused(athanor, "rm", run, 8, "--force")
        assert "is in use" in line and line.endswith("wait until it has ended, or end it")
        athanor.run("checkpoint", "verify", run)
        assert training.poll() is None
    finally:
        training.send_signal(signal.SIGTERM)
        error = training.communicate(timeout=300)[1]
    assert training.returncode == 143, error


def test_copies_by_a_launcher_may_list_and_compare_and_not_remove(athanor, run):
    environment = {**os.environ, "PMI_RANK": "0", "PMI_SIZE": "2"}
    for words in (["ls", run], ["diff", step_of(run, 3), step_of(run, 3)]):
        athanor.run("checkpoint", *words, env=environment)
    done = athanor.run("checkpoint", "rm", run, "3", env=environment, check=False)
    assert done.returncode == 2 and "checkpoint rm" in done.stderr, done.stderr
    assert step_of(run, 3).exists()


def test_a_disk_that_fails_is_no_damage(athanor, run):
    environment = {**os.environ, "ATHANOR_FAULT": "checkpoint.open:eio"}
    done = athanor.run("checkpoint", "verify", step_of(run, 8), check=False, env=environment)
    assert done.returncode == 74 and "cannot be read" in done.stdout and "damaged" not in done.stdout


def claim(athanor, checkpoint, edit):
    """Edits the manifest and gives it the hash that it then has, as a faulty program could write it."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    edit(manifest)
    keys = ["format", "version", "athanor", "model", "state", "tensors", "files", "pieces"]
    members = [f"{json.dumps(key)}: {json.dumps(manifest[key])}" for key in keys]
    (checkpoint / "manifest.json").write_text('{"hash": "",\n' + ",\n".join(members) + "}\n")
    subprocess.run([athanor.path.with_name("checkpoint_tool"), "seal", checkpoint], check=True)


def rename_file(manifest, name):
    manifest["files"] = {name: size for size in manifest["files"].values()}
    for piece in manifest["pieces"]:
        piece["file"] = name


def share_bytes(manifest):
    a, b, *_ = [piece for piece in manifest["pieces"] if piece["flat_end"] == manifest["pieces"][0]["flat_end"]]
    b["byte_offset"], b["hash"] = a["byte_offset"], a["hash"]


CLAIMS = {
    "another version": (lambda m: m.update(version=2), "version 2 was written by another athanor"),
    "a file elsewhere": (lambda m: rename_file(m, "../x.safetensors"), "is not the name of a safetensors file"),
    "2^60 elements": (lambda m: m["tensors"].update({"master/x": [2**30, 2**30]}), "hold 0 of its 1152921504606846976 elements"),
    "shared bytes": (share_bytes, "share bytes of pieces-00000.safetensors"),
    "a position behind the end": (lambda m: m["pieces"][0].update(byte_offset=2**62), "do not fit into"),
    "a step that is a text": (lambda m: m["state"].update(step="8\n9"), "step is"),
    "no data": (lambda m: m["state"].pop("data"), "its numbers cannot be read (key 'data' not found)"),
    "an order of several lines": (lambda m: m["state"]["data"].update(order="x\ny"), 'data.order is "x\\ny"'),
    "a source of several lines": (lambda m: m["state"]["data"]["mix"].update({"a\nb": {"weight": 1, "drawn": 0}}), "a\\nb of the mix"),
    "another model": (lambda m: m["model"].update(hidden_size=[1] * 100_000), "is of another model: hidden_size is [1,1,"),
    "shares that are texts": (lambda m: m["state"].update(router_previous_share=[["x"] * 8] * 2), "type must be number"),
}


# What hostile_checkpoint_test, checkpointing_test and rotation_test refuse too.
REFUSED_ELSEWHERE = ("a file elsewhere", "shared bytes", "a position behind the end", "an order of several lines", "another model",
                     "shares that are texts")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if name in REFUSED_ELSEWHERE else []) for name in CLAIMS])
def test_a_resume_refuses_what_cannot_be_in_one_short_line(athanor, run, trained, tmp_path, name):
    edit, answer = CLAIMS[name]
    checkpoint = step_of(run, 8)
    claim(athanor, checkpoint, edit)
    before = listing(tmp_path)
    done = athanor.run("train", trained.config, "--set", f"train.run_dir={tmp_path / 'new'}", "--set", f"checkpoint.resume={checkpoint}",
                       "--set", "train.steps=9", check=False)
    errors = [line for line in done.stderr.splitlines() if not line[9:].startswith(("I ", "W "))]
    assert done.returncode == 2 and len(errors) == 1 and answer in errors[0] and len(errors[0]) < 1000, done.stderr[-3000:]
    assert "json.exception" not in done.stderr
    assert listing(tmp_path) == before and not (tmp_path / "new").exists()
