"""`athanor lr-find`: it repeats bit for bit, leaves nothing in the folder of the run, tells what is wrong with a range, and compares widths."""
import json
import os
import re
import signal
import subprocess
import time

import pytest
from runs import Run, make_data

SMALL = ["--set", "train.dtype=float32", "--steps", 60, "--from", 1e-4]


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


@pytest.fixture
def run(athanor, data, tmp_path):
    return Run(athanor, tmp_path, data, "llama")


def find(run, *options, **how):
    return run.athanor.run("lr-find", run.config, *options, **how)


@pytest.fixture(scope="module")
def swept(athanor, data, tmp_path_factory):
    """What a sweep of the default optimizer prints."""
    return find(Run(athanor, tmp_path_factory.mktemp("swept"), data, "llama"), *SMALL, "--json").stdout


def contents(folder):
    """Returns path → (time of the last change, bytes) of everything below the folder."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None) for path in sorted(folder.rglob("*"))}


def error_lines(done):
    return [line for line in done.stderr.splitlines() if re.match(r"\d\d:\d\d:\d\d E ", line)]


def test_the_same_command_gives_the_same_bits_on_any_number_of_threads(run):
    first, second = (find(run, *SMALL, "--json", env=dict(os.environ, OMP_NUM_THREADS=threads)).stdout for threads in ("1", "2"))
    assert first == second and json.loads(first)["optimizers"][0]["steepest"] > 0


def test_each_optimizer_begins_with_the_same_weights_and_batches(run, swept, tmp_path):
    out = tmp_path / "found.json"
    done = find(run, *SMALL, "--optimizers", "lamb,adamw", "--out", out, "--figure", tmp_path / "sweep.svg")
    first, second = json.loads(out.read_text())["optimizers"]
    assert first["first_loss"] == second["first_loss"]
    assert second == json.loads(swept)["optimizers"][0]
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["optimizer", "lamb", "adamw"]
    assert [line.split(",")[0] for line in done.stdout.splitlines()[-2:]] == [
        f"{each['name']}: take --set optimizer.lr={each['suggested']:.2e}" for each in (first, second)]
    picture = (tmp_path / "sweep.svg").read_text()
    assert picture.startswith("<svg") and "steepest" in picture and "cautious" in picture


def test_an_option_of_one_swept_optimizer_changes_nothing_of_the_others(run, swept):
    done = find(run, *SMALL, "--optimizers", "adamw,muon", "--set", "optimizer.muon_scale=keller_jordan", "--set", "optimizer.momentum=0.5", "--json")
    adamw, muon = json.loads(done.stdout)["optimizers"]
    assert adamw == json.loads(swept)["optimizers"][0]
    assert muon["points"] != json.loads(find(run, *SMALL, "--optimizers", "muon", "--json").stdout)["optimizers"][0]["points"]


def test_each_sweep_and_training_is_announced_on_stderr(run):
    def announced(*options, **how):
        done = find(run, "--set", "train.dtype=float32", "--steps", 20, *options, "--json", **how)
        assert len(done.stdout.splitlines()) == 1, done.stdout
        return [line[11:] for line in done.stderr.splitlines() if re.search(r" I (sweep|hidden_size) \d+ (of|\()", line)]

    sweep = "20 steps at rates from 0.0001 to 10"
    assert announced("--from", 1e-4, "--optimizers", "lamb,adamw") == [f"sweep 1 of 2: lamb, {sweep}", f"sweep 2 of 2: adamw, {sweep}"]
    grid = announced("--widths", "16,32", "--rates", "1e-3,1e-2", check=False)
    assert grid[:2] == [f"hidden_size 16 (1 of 2), training {i} of 2: adamw, rate {rate}, 20 steps" for i, rate in ((1, "0.001"), (2, "0.01"))]
    assert grid[2].startswith("hidden_size 16 (1 of 2), training 3 of 3: adamw") and "hidden_size 32 (2 of 2), training 1 of 2" in "\n".join(grid)
    assert announced("--optimizers", "adamw", env=dict(os.environ, ATHANOR_LOG="warn")) == []


def test_a_schedule_in_tokens_changes_nothing_of_a_sweep(run, swept):
    in_tokens = [part for key in ("warmup_steps=0", "schedule_tokens=1e12", "warmup_tokens=1e10") for part in ("--set", "optimizer." + key)]
    assert find(run, *SMALL, *in_tokens, "--json").stdout == swept


def test_a_range_that_blows_up_at_once_has_no_rate_to_take(run, tmp_path):
    out = tmp_path / "found.json"
    done = find(run, "--steps", 20, "--set", "train.dtype=float32", "--from", 1e3, "--to", 1e5, "--set", "optimizer.max_grad_norm=0", "--out", out,
                check=False)
    found = json.loads(out.read_text())["optimizers"][0]
    assert done.returncode == 2 and found["blow_up"] > 0 and found["cautious"] is None
    assert done.stdout.splitlines()[2].split()[-1] == "-"


def test_the_rates_are_those_of_the_curve(swept):
    found = json.loads(swept)["optimizers"][0]
    points = found["points"]
    assert found["first_loss"] == points[0]["loss"] and found["lowest"] == min(point["smoothed"] for point in points)
    assert found["cautious"] == pytest.approx(found["blow_up"] / 10, rel=1e-15)
    assert points[0]["smoothed_lr"] < found["steepest"] < found["blow_up"] <= points[-1]["lr"]
    assert len(points) < 60  # it has stopped early


def test_a_run_that_exists_is_neither_read_nor_changed(run, swept, tmp_path):
    run.train()
    there = contents(tmp_path)
    assert find(run, *SMALL, "--json", cwd=tmp_path).stdout == swept
    assert contents(tmp_path) == there


def test_an_interrupted_sweep_leaves_nothing(run, tmp_path):
    there = contents(tmp_path)
    process = subprocess.Popen([str(run.athanor.path), "lr-find", str(run.config), "--steps", "900000", "--out", str(tmp_path / "found.json"),
                                "--figure", str(tmp_path / "sweep.svg")], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "memory: about" in line:  # the last check before the sweep
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) in (-signal.SIGINT, 128 + signal.SIGINT)
    process.stderr.close()
    assert contents(tmp_path) == there


@pytest.mark.parametrize("options, named", [
    (["--from", 1e3, "--to", 1e5, "--set", "optimizer.max_grad_norm=0"], "--from"),
    (["--from", 1e-12, "--to", 1e-11], "--to"),
], ids=["diverges at once", "never moves"])
def test_a_range_at_fault_is_told_in_one_line_with_its_remedy(run, options, named):
    done = find(run, "--steps", 20, "--set", "train.dtype=float32", *options, check=False)
    lines = error_lines(done)
    assert done.returncode == 2 and len(lines) == 1 and named in lines[0], done.stderr


@pytest.mark.parametrize("options, named", [
    (["--optimizers", "adamw,nonsense"], '--optimizers: expected one of adamw, sgd, lamb, sophiag, muon, got "nonsense"'),
    (["--optimizers", "adamw, muon", "--set", "optimizer.momentum=0.5"], 'got " muon"'),
    (["--optimizers", "adamw,"], "--optimizers adamw,: a name is missing"),
    (["--optimizers", "adamw,lamb,adamw"], "adamw twice"),
    (["--set", "checkpoint.resume=somewhere"], "checkpoint.resume"),
    (["--from", 1, "--to", 0.1], "--from"),
    (["--rates", "1e-3,2e-3"], "--widths"),
    (["--widths", "16", "--rates", "2e-3,1e-3"], "--rates"),
    (["--widths", "20"], "multiples of 16"),
    pytest.param(["--widths", "16", "--set", "optimizer.scaling=mup"], "optimizer.base_width", marks=pytest.mark.slow),
    pytest.param(["--optimizers", "adamw,muon", "--set", "optimizer.rho=0.1"], "optimizer.rho is an option of sophiag", marks=pytest.mark.slow),
    (["--out", "notes.txt"], "--out"),
    (["--out", "other.json"], "--out"),
    (["--figure", "x.png"], "--figure"),
])
def test_what_cannot_be_done_is_refused_before_anything_is_computed(run, tmp_path, options, named):
    (tmp_path / "other.json").write_text("{}\n")
    done = find(run, *options, check=False, cwd=tmp_path)
    lines = error_lines(done)
    assert done.returncode == 2 and len(lines) == 1 and named in lines[0], done.stderr
    assert (tmp_path / "other.json").read_text() == "{}\n"


def test_the_best_rates_of_widths_and_the_rate_of_the_target_are_shown(run, tmp_path):
    out = tmp_path / "widths.json"
    done = find(run, "--set", "train.dtype=float32", "--set", "optimizer.scaling=mup", "--set", "optimizer.base_width=16", "--steps", 20,
                "--widths", "32,16", "--rates", "1e-3,8e-3,64e-3", "--out", out, "--figure", tmp_path / "widths.svg")
    found = json.loads(out.read_text())
    assert [width["hidden_size"] for width in found["widths"]] == [16, 32]
    for width in found["widths"]:
        grid = sorted((each["loss"], each["lr"]) for each in width["grid"] if each["loss"] is not None)
        assert width["edge"] != 0 or grid[0][1] / 8 < width["best"] < grid[0][1] * 8
    assert found["target"]["hidden_size"] == 32 and found["target"]["lr"] > 0
    assert "At hidden_size 32: take --set optimizer.lr=" in done.stdout and "hidden_size 16" in (tmp_path / "widths.svg").read_text()


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_scaled_by_mup_has_the_same_logits_after_its_export(run, tmp_path, tied):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    run.train("train.dtype=float32", "optimizer.scaling=mup", "optimizer.base_width=8", f"model.tie_word_embeddings={str(tied).lower()}",
              "model.initializer_range=0.3")
    run.athanor.run("export", run.folder, "--out", tmp_path / "hf", "--dtype", "float32")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", dtype=torch.float32).eval()
    prompt = "the quick brown"
    ours = json.loads(run.athanor.run("generate", run.folder, "--prompt", prompt, "--max-new-tokens", 12, "--temperature", 0, "--dtype", "float32",
                                      "--json").stdout)
    ids = torch.tensor([ours["prompt_ids"]])
    with torch.no_grad():
        theirs = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(ours["new_ids"]), do_sample=False)
    assert theirs[0, ids.shape[1]:].tolist() == ours["new_ids"]
    scale = model.model.norm.weight.mean().item()
    assert (scale < 0.6) == tied  # with r = 8 / 32, the final norm of a tied model begins with 0.25
