"""Whole runs of `athanor train` on several ranks train like one rank: interrupted, moved to other layouts, with failures."""
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))
from launchers import with_fault_on  # noqa: E402
from runs import CONFIG, make_data  # noqa: E402

KEYS = ["loss", "aux_loss", "z_loss", "grad_norm", "validation_loss"]
LAYOUTS = [
    (2, ["parallelism.sharding=none"]),
    (4, ["parallelism.sharding=optimizer", "parallelism.expert_parallel_degree=2", "moe.dispatch=allgather"]),
    (4, ["parallelism.sharding=hierarchical", "parallelism.data_parallel_replicate_degree=2",
         "parallelism.expert_parallel_degree=4", "parallelism.mapping=data_inner", "moe.dispatch=all_to_all"]),
]
# Ranks that share the model's matrices and layers. The model has 2 layers, 4 heads, and 2 heads of keys and values.
PIPELINE = ["parallelism.pipeline_parallel_degree=2"]
TENSOR = ["parallelism.tensor_parallel_degree=2"]
SHARING = [
    (2, [*PIPELINE, "parallelism.pipeline_schedule=gpipe"]),
    (4, ["parallelism.tensor_parallel_degree=4", "model.tie_word_embeddings=true"]),
    (4, [*PIPELINE, *TENSOR, "parallelism.sequence_parallel=true"]),
    (8, [*PIPELINE, *TENSOR, "parallelism.expert_parallel_degree=2", "model.tie_word_embeddings=true"]),
]
# `make test` has each kind of ranks, sharding, dispatch and schedule of these in fewer layouts.
DIAGONAL = [
    (2, ["parallelism.sharding=none", *PIPELINE, "parallelism.pipeline_schedule=gpipe"]),
    (2, ["parallelism.sharding=optimizer", "parallelism.expert_parallel_degree=2", "moe.dispatch=allgather"]),
    LAYOUTS[2],
    SHARING[1],
    (4, [*PIPELINE, *TENSOR, "parallelism.sequence_parallel=true", "model.tie_word_embeddings=true"]),
]
REST = [layout for layout in LAYOUTS + SHARING if layout not in DIAGONAL]


class Athanor:
    """The part of a program that `make_data` uses."""

    def __init__(self, path):
        self.path = path

    def run(self, *arguments, **options):
        return subprocess.run([str(self.path), *map(str, arguments)], check=True, capture_output=True, text=True, **options)


class RankRun:
    def __init__(self, program, folder, data, name):
        self.program, self.folder = program("athanor"), folder / name
        self.config = folder / f"{name}.toml"
        text = CONFIG.format(family="olmoe", experts=8, topk=2, data=data, run=self.folder)
        text = text.replace("steps = 8", "steps = 8\nnum_threads = 1\ndtype = \"float32\"")
        self.config.write_text(text.replace("micro_batch_size = 2", "micro_batch_size = 1"))

    def words(self, overrides):
        return [str(self.config), *(part for word in overrides for part in ("--set", word))]

    def alone(self, *overrides):
        done = subprocess.run([self.program, "train", *self.words(overrides)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return self

    def on(self, mpi, ranks, *overrides, expect=0, env=None):
        code, out, err, _ = mpi.run(ranks, self.program, "train", *self.words(overrides), env=env)
        assert code == expect, out + err
        self.said = err
        return self

    def metrics(self):
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def checkpoint(self, step):
        return self.folder / "checkpoints" / f"step-{step:08}"


@pytest.fixture(scope="module")
def data(program, tmp_path_factory):
    return make_data(Athanor(program("athanor")), tmp_path_factory.mktemp("data"))


@pytest.fixture
def open_mpi(program):
    import launchers
    launcher = launchers.find("Open MPI") or launchers.find("MPICH")
    if launcher is None:
        pytest.skip("no mpirun on the PATH")
    return launcher


@pytest.fixture(scope="module")
def alone(program, data, tmp_path_factory):
    """Returns a function from settings to the run of one rank with them."""
    @functools.cache
    def find(*settings):
        return RankRun(program, tmp_path_factory.mktemp("alone"), data, "one").alone(*settings)

    return find


def assert_same_training(one, many):
    lines = one.metrics(), many.metrics()
    assert len(lines[0]) == len(lines[1])
    for a, b in zip(*lines):
        for key in KEYS:
            if key in a:
                # fp32 on a model of 20 k parameters: verify bounds the error; this test uses one digit that no fault would leave unchanged.
                assert a[key] == pytest.approx(b[key], rel=2e-4), (key, a["step"])
        assert a["tokens_seen"] == b["tokens_seen"]


@pytest.mark.parametrize("ranks,layout", [*DIAGONAL, *(pytest.param(*layout, marks=pytest.mark.slow) for layout in REST)])
def test_ranks_train_as_one_does_and_their_model_is_their_checkpoint(open_mpi, program, data, tmp_path, alone, ranks, layout):
    one = alone(*(word for word in layout if word.startswith("model.")))
    many = RankRun(program, tmp_path, data, "many").on(open_mpi, ranks, *layout)
    assert_same_training(one, many)
    again = tmp_path / "exported"
    subprocess.run([many.program, "export", many.folder, "--out", again], check=True, capture_output=True)
    kept = many.folder / "models" / "step-00000008"
    for file in again.glob("*.safetensors"):
        assert file.read_bytes() == (kept / file.name).read_bytes(), file.name


def test_parameters_without_decay_are_named_across_a_pipeline(open_mpi, program, data, tmp_path):
    # Embedding and output are on different ranks: neither rank has a match for the other's pattern.
    decay = ["optimizer.no_weight_decay=[\"model.embed_tokens.weight\", \"lm_head.weight\"]", "optimizer.weight_decay=10"]
    one = RankRun(program, tmp_path, data, "one").alone(*decay)
    many = RankRun(program, tmp_path, data, "many").on(open_mpi, 2, *PIPELINE, *decay)
    assert_same_training(one, many)
    code, out, err, _ = open_mpi.run(2, many.program, "train", *many.words([*PIPELINE, "optimizer.no_weight_decay=[\"*bias\"]"]))
    assert code == 2 and "\"*bias\" matches no parameter" in err, out + err


def test_ranks_count_the_tokens_of_the_unigram_entropy_together(open_mpi, program, data, tmp_path):
    one, many = RankRun(program, tmp_path, data, "one"), RankRun(program, tmp_path, data, "many")
    alone = subprocess.run([one.program, "train", *one.words(["train.steps=4"])], capture_output=True, text=True, check=True).stderr
    said = many.on(open_mpi, 3, "train.steps=4", "train.global_batch_size=3").said
    found = [re.findall(r"unigram entropy of the same split: ([\d.]+)", text) for text in (alone, said)]
    assert len(found[0]) == 1 and found[0] == found[1], alone + said


def test_a_run_moves_between_layouts_as_if_it_had_never_been_cut(open_mpi, program, data, tmp_path):
    many = RankRun(program, tmp_path, data, "many")
    for steps, (ranks, layout) in zip((3, 5, 6), DIAGONAL):
        many.on(open_mpi, ranks, *layout, f"train.steps={steps}", "optimizer.decay_steps=0", "optimizer.schedule=constant")
    many.alone("optimizer.schedule=constant")
    one = RankRun(program, tmp_path, data, "constant").alone("optimizer.schedule=constant")
    assert [line["step"] for line in many.metrics()] == list(range(1, 9))
    for a, b in zip(one.metrics(), many.metrics()):
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-4), a["step"]


def test_a_batch_that_grows_does_so_under_any_layout_and_across_a_change_of_it(open_mpi, program, data, tmp_path):
    ramp = ["data.seq_len=32", "train.global_batch_size=8", "optimizer.schedule_steps=8", "checkpoint.interval=1",
            "train.batch_ramp=[{sequences = 2, until_tokens = 128}, {sequences = 4, until_tokens = 384}]"]
    one = RankRun(program, tmp_path, data, "one").alone(*ramp)
    assert [line["sequences"] for line in one.metrics()] == [2, 2, 4, 4, 8, 8, 8, 8]
    many = RankRun(program, tmp_path, data, "many").on(open_mpi, 2, *ramp, "parallelism.expert_parallel_degree=2", "train.steps=3")
    many.on(open_mpi, 2, *ramp, *PIPELINE, "train.steps=5")
    many.on(open_mpi, 2, *ramp, "parallelism.sharding=none", "metrics.noise_scale_interval=1")
    assert [line["sequences"] for line in many.metrics()] == [2, 2, 4, 4, 8, 8, 8, 8]
    assert_same_training(one, many)
    drawn = [json.loads((run.checkpoint(8) / "manifest.json").read_text())["state"]["data"] for run in (one, many)]
    assert drawn[0] == drawn[1]


# `make test` has four ranks in both places, without experts and then without tensor ranks.
@pytest.mark.parametrize("first,second", [(4, 4), pytest.param(12, 8, marks=pytest.mark.slow)])
def test_twelve_ranks_then_one_then_eight_train_as_one_rank_does(open_mpi, program, data, tmp_path, first, second):
    both = ["model.num_hidden_layers=4", "model.num_experts=6", "train.global_batch_size=12", "optimizer.schedule=constant",
            "model.tie_word_embeddings=true"]
    twelve = ["parallelism.pipeline_schedule=interleaved_1f1b", "parallelism.virtual_stages=2", *PIPELINE, *TENSOR,
              "parallelism.sequence_parallel=true", "parallelism.expert_parallel_degree=3", "moe.dispatch=all_to_all"]
    eight = [*PIPELINE, *TENSOR, "parallelism.pipeline_split=[1, 3]", "parallelism.data_parallel_replicate_degree=2",
             "parallelism.sharding=hierarchical", "parallelism.expert_parallel_degree=2", "moe.dispatch=all_to_all_2d",
             "parallelism.mapping=[\"tensor\", \"shard\", \"expert\", \"pipeline\", \"replicate\", \"context\"]"]
    if (first, second) == (4, 4):
        twelve.append("parallelism.expert_parallel_degree=1")
        eight.append("parallelism.tensor_parallel_degree=1")
    one = RankRun(program, tmp_path, data, "one").alone(*both)
    many = RankRun(program, tmp_path, data, "many").on(open_mpi, first, *both, *twelve, "train.steps=3")
    many.alone(*both, "train.steps=5").on(open_mpi, second, *both, *eight)
    assert [line["step"] for line in many.metrics()] == list(range(1, 9))
    assert_same_training(one, many)


@pytest.mark.parametrize("load,layout", [("broadcast", "stages"), ("all_reduce", "experts"), pytest.param("broadcast", "experts", marks=pytest.mark.slow),
                                         pytest.param("all_reduce", "stages", marks=pytest.mark.slow)])
def test_weights_that_one_rank_reads_reach_all(open_mpi, program, data, tmp_path, alone, load, layout):
    begins = f"checkpoint.resume={alone().folder / 'models' / 'step-00000008'}", "train.steps=12"
    settings = {"experts": ["parallelism.expert_parallel_degree=2"], "stages": [*PIPELINE, *TENSOR]}[layout]
    many = RankRun(program, tmp_path, data, layout).on(open_mpi, 4, *begins, f"checkpoint.load={load}", *settings)
    assert_same_training(alone(*begins), many)


def test_a_full_disk_on_one_rank_costs_the_checkpoint_and_is_said_once(open_mpi, program, data, tmp_path):
    run = RankRun(program, tmp_path, data, "run")
    # A rank that has the variable cannot write its first piece.
    run.program = with_fault_on(run.program, 1, "checkpoint.piece:enospc@1", tmp_path / "second_is_full")
    run.on(open_mpi, 2, "checkpoint.model_interval=0")
    assert run.said.count("No space left on device") == 1, run.said
    assert not run.checkpoint(3).exists() and run.checkpoint(6).exists()
    assert len(run.metrics()) == 8


def test_a_rank_killed_while_it_saves_leaves_the_checkpoint_before(open_mpi, program, data, tmp_path):
    whole = RankRun(program, tmp_path, data, "whole").on(open_mpi, 2)
    manifest = json.loads((whole.checkpoint(6) / "manifest.json").read_text())
    own = sum(piece["file"].startswith("pieces-00001") for piece in manifest["pieces"])
    run = RankRun(program, tmp_path, data, "run")
    script = with_fault_on(run.program, 1, f"checkpoint.piece:kill@{own + 3}", tmp_path / "second_dies")
    real, run.program = run.program, script
    code, _, err, _ = open_mpi.run(2, run.program, "train", *run.words(["checkpoint.interval=1"]))
    assert code != 0 and run.checkpoint(1).exists(), err
    run.program = real
    run.on(open_mpi, 2)
    for a, b in zip(whole.metrics(), run.metrics()):
        assert (a["step"], a["loss"], a["grad_norm"]) == (b["step"], b["loss"], b["grad_norm"])


def rank_processes(config):
    """Returns the process ids of ranks that train with this configuration."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(config).encode() in words and b"train" in words and b"mpirun" not in words[0]:
            found.append(int(folder.name))
    return found


ENDLESS = ["train.steps=100000", "checkpoint.interval=50000", "checkpoint.model_interval=0",
           "train.validation_interval=0", "optimizer.schedule=constant"]


def stopped(open_mpi, run, ranks, overrides, num_steps, send, env=None):
    """Starts a run, calls send(process) when it has done a number of steps, and returns what it wrote to standard error."""
    process = subprocess.Popen([open_mpi.path, *open_mpi.options, "-n", str(ranks), run.program, "train",
                                *run.words([*ENDLESS, *overrides])], env=dict(os.environ, OMP_NUM_THREADS="1", **(env or {})),
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        metrics = run.folder / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while not (metrics.exists() and metrics.read_text().count("\n") >= num_steps) and time.monotonic() < deadline:
            time.sleep(0.02)
        send(process)
        return process.communicate(timeout=120)[1]
    finally:
        process.kill()


# Both ranks sleep in each step, for longer than the second that mpirun allows.
LONG_STEPS = "".join(f'\n[[faults.plan]]\nkind = "slow"\nstep = 1\nsteps = 1000\nrank = {rank}\nphase = "update"\nseconds = 3\n' for rank in range(2))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_to_mpirun_saves_although_it_kills_its_ranks_after_a_second(open_mpi, program, data, tmp_path, number):
    run = RankRun(program, tmp_path, data, "run")
    run.config.write_text(run.config.read_text() + LONG_STEPS)
    err = stopped(open_mpi, run, 2, [], 1, lambda mpirun: mpirun.send_signal(number), env={"ATHANOR_ALLOW_FAULTS": "1"})
    assert run.metrics()[0]["step_s"] > 1.3, "the step is too short to show anything"
    last = run.metrics()[-1]["step"]
    assert last == 2 and run.checkpoint(last).exists(), err  # the step that was being computed was finished and saved
    # The mpirun of Open MPI 5 passes nothing on any more; the run's own log tells it in any case (docs/signals.md).
    said = err if open_mpi.version < 5 else (run.folder / "log/train.log").read_text()
    assert f"stopped by SIGTERM after step {last}" in said, said


@pytest.mark.parametrize("ranks,layout", [(2, PIPELINE), pytest.param(2, [], marks=pytest.mark.slow),
                                          pytest.param(4, [*PIPELINE, *TENSOR], marks=pytest.mark.slow)])
def test_a_signal_to_one_rank_ends_all_after_the_same_step(open_mpi, program, data, tmp_path, ranks, layout):
    run = RankRun(program, tmp_path, data, "run")
    err = stopped(open_mpi, run, ranks, layout, 3,
                  lambda mpirun: os.kill(rank_processes(run.config)[-1], signal.SIGTERM))
    last = run.metrics()[-1]["step"]
    assert f"stopped by SIGTERM after step {last}" in err, err
    assert run.checkpoint(last).exists()
    steps = f"train.steps={last + 2}"
    run.on(open_mpi, ranks, *ENDLESS, *layout, steps)
    whole = RankRun(program, tmp_path, data, "whole").on(open_mpi, ranks, *ENDLESS, *layout, steps)
    for a, b in zip(whole.metrics(), run.metrics(), strict=True):
        assert (a["step"], a["loss"], a["grad_norm"]) == (b["step"], b["loss"], b["grad_norm"])


def files_of(run):
    """Returns the paths in the run folder without the reports of the board, which the first job's collector writes when it is time."""
    return {path for path in run.folder.rglob("*") if "board" not in path.relative_to(run.folder).parts}


def test_a_second_job_in_one_folder_is_refused_once_and_told_who_holds_it(open_mpi, program, data, tmp_path):
    run = RankRun(program, tmp_path, data, "run")
    process = subprocess.Popen([open_mpi.path, *open_mpi.options, "-n", "2", run.program, "train", *run.words(ENDLESS)],
                               env=dict(os.environ, OMP_NUM_THREADS="1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not (run.folder / "metrics.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        # The job is stopped meanwhile: two ranks of a tiny model leave a second job on two cores almost no processor time.
        ranks = rank_processes(run.config)
        for rank in ranks:
            os.kill(rank, signal.SIGSTOP)
        before = files_of(run)
        run.on(open_mpi, 2, *ENDLESS, expect=2)
        assert run.said.count("is in use: process ") == 1, run.said
        assert files_of(run) == before
        for rank in ranks:
            os.kill(rank, signal.SIGCONT)
        os.kill(ranks[-1], signal.SIGTERM)
        process.wait(timeout=120)
    finally:
        process.kill()
    assert not (run.folder / "lock").exists()


def test_several_ranks_go_back_together(open_mpi, program, data, tmp_path):
    run = RankRun(program, tmp_path, data, "run").on(open_mpi, 2)
    back = f"checkpoint.resume={run.folder / 'models' / 'step-00000004'}"
    run.on(open_mpi, 2, back, *LAYOUTS[1][1])
    assert "went back to step 4" in run.said and "fresh moments" in run.said
    assert [line["step"] for line in run.metrics()] == list(range(1, 9))
    assert (run.folder / "checkpoints" / "abandoned-002" / "step-00000008" / "manifest.json").exists()


def on_different_cpus(program, folder):
    """Returns the program on a simulated machine where the CPU of rank 0 is fast in bf16 and the others are not."""
    script = folder / "different"
    script.write_text("#!/bin/bash\nrank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}\n"
                      f'ATHANOR_FAST_BF16=$((rank == 0)) exec {program("athanor")} "$@"\n')
    script.chmod(0o755)
    return script


def test_an_automatic_type_is_the_first_ranks_on_all_and_stays(open_mpi, program, data, tmp_path):
    run = RankRun(program, tmp_path, data, "run")
    run.program = on_different_cpus(program, tmp_path)
    run.on(open_mpi, 2, "train.dtype=auto", "train.steps=3")
    assert 'dtype = "bfloat16"\n' in (run.folder / "config.toml").read_text()
    run.program = program("athanor")
    run.on(open_mpi, 2, "train.dtype=auto", env={"ATHANOR_FAST_BF16": "0"})
    assert "train.dtype stays bfloat16, in which this run began" in run.said
    named = RankRun(program, tmp_path, data, "named").on(open_mpi, 2, "train.dtype=bf16")
    for a, b in zip(run.metrics(), named.metrics(), strict=True):
        assert (a["loss"], a["grad_norm"]) == (b["loss"], b["grad_norm"])


def test_verify_refuses_an_automatic_type_that_hosts_see_differently(open_mpi, program, data, tmp_path):
    run = RankRun(program, tmp_path, data, "run")
    code, _, err, _ = open_mpi.run(2, on_different_cpus(program, tmp_path), "verify", run.config, "--set", "train.dtype=auto")
    assert code == 2 and 'train.dtype = "auto" is bfloat16 on the first rank\'s host and float32 on' in err, err


def test_mfu_is_a_share_of_all_ranks_devices(open_mpi, program, data, tmp_path):
    run = RankRun(program, tmp_path, data, "run").on(open_mpi, 2, "metrics.gemm_peak_tflops=0.1")
    assert "MFU is a share of 200.00 GFLOP/s, what 2 ranks make together (metrics.gemm_peak_tflops)" in run.said
    for step in run.metrics():
        assert step["gemm_peak_tflops"] == 0.2 and step["mfu"] == pytest.approx(step["tflops"] / 0.2)
