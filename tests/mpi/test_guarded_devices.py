"""Whole runs of several ranks, each a process with a device that the host plays (athanor_on_guarded.cpp)."""
import functools
import functools
import hashlib
import json
import os
import re
import signal
import subprocess
import time

import pytest

from launchers import with_fault_on
from test_failures import SECONDS
from test_runs import KEYS, PIPELINE, TENSOR, ENDLESS, RankRun, assert_same_training, data, open_mpi, rank_processes  # noqa: F401
from greedy import GREEDY, answers_of, greedy_theirs, make_model, make_prompts  # noqa: E402, after test_runs has set the path

ON_DEVICES, ON_CPUS = "train.device=auto", "train.device=cpu"
EXPERTS = ["parallelism.expert_parallel_degree=2", "moe.dispatch=all_to_all"]
STATISTICS = ["metrics.layer_statistics=3"]

# How many ranks, their layout, and how often the first rank's host fetches how many rows it exchanges: in each of its sparse
# layers, for each microbatch.
LAYOUTS = {
    "sharded in bf16": (2, ["parallelism.sharding=optimizer", "train.dtype=bfloat16", *STATISTICS], 0),
    "experts": (2, ["parallelism.sharding=optimizer", *EXPERTS], 2 * 2),
    "replicated experts": (4, ["parallelism.sharding=hierarchical", "parallelism.data_parallel_replicate_degree=2",
                    "parallelism.mapping=data_inner", "train.global_batch_size=8", *EXPERTS], 2 * 2),
    "tensor ranks in stages": (4, [*PIPELINE, *TENSOR, "parallelism.sequence_parallel=true", *STATISTICS], 0),
}


class GuardedRun(RankRun):
    """A run of the program that has such devices."""

    def __init__(self, program, folder, data, name):  # noqa: F811
        super().__init__(program, folder, data, name)
        self.program = program("athanor_on_guarded")

    def on_devices(self, launcher, ranks, *overrides, order="earliest", **options):
        return self.on(launcher, ranks, ON_DEVICES, *overrides, env={"ATHANOR_GUARDED_ORDER": order}, **options)

    def bits(self):
        """Returns the numbers of all steps, and hashes of the model and of what the last checkpoint holds."""
        numbers = [{key: value for key, value in line.items() if key in [*KEYS, "changed_share"] or key.startswith("layer_")}
                   for line in self.metrics()]
        models = {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                  for path in (self.folder / "models" / "step-00000008").glob("*.safetensors")}
        assert models
        manifest = json.loads((self.checkpoint(8) / "manifest.json").read_text())
        return numbers, models, sorted((piece["tensor"], piece["hash"]) for piece in manifest["pieces"])


@pytest.fixture(scope="module")
def devices(any_launcher, program, data, tmp_path_factory):  # noqa: F811
    """Returns a function from a layout to its run on devices that nothing stops. All tests share it."""
    @functools.cache
    def find(name):
        ranks, layout, _ = LAYOUTS[name]
        return GuardedRun(program, tmp_path_factory.mktemp("devices"), data, "on_devices").on_devices(any_launcher, ranks, *layout)

    find("experts")
    return find


def wait_until_none_trains(config):
    """A launcher may end before a rank that it has sent a signal, which then still holds the run folder."""
    deadline = time.monotonic() + 120
    while rank_processes(config) and time.monotonic() < deadline:
        time.sleep(0.1)


def largest_difference(one, other):
    lines = one.metrics(), other.metrics()
    assert [line["step"] for line in lines[0]] == [line["step"] for line in lines[1]]
    pairs = [(a[key], b[key]) for a, b in zip(*lines) for key in KEYS if key in a]
    assert pairs
    return max(abs(a - b) / abs(a) for a, b in pairs if a != b or a != 0)


# Two runs differ by at most four times what runs on CPUs differ by whose products are added in other orders: see
# src/saves/device_test.cpp. Those are two draws, and on some processors both are nearly the same path, so that what they show
# may be a single rounding. The bound is therefore never below what the order of one sum of hidden_size terms may change: its
# error is at most hidden_size · 2^-24 of the sum of their sizes.
ONE_SUM = 32 * 2**-24


@pytest.mark.slow  # train_on_device has this for threads of one process, and test_drawn_on_devices for layouts
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_of_devices_trains_as_on_cpus_with_the_same_bits_in_two_orders(open_mpi, program, data, tmp_path, devices, name):  # noqa: F811
    ranks, layout, fetches = LAYOUTS[name]

    def run(folder):
        return GuardedRun(program, tmp_path, data, folder)

    on_cpus = run("on_cpus").on(open_mpi, ranks, ON_CPUS, *layout)
    others = [run(path).on(open_mpi, ranks, ON_CPUS, *layout, env={"ATHANOR_MATMUL": path}) for path in ("library", "avx2")]
    rounding = max(largest_difference(on_cpus, other) for other in others)
    assert rounding > 0
    on_devices = devices(name)
    assert "device: one for each rank, here guarded:0" in on_devices.said, on_devices.said
    assert largest_difference(on_cpus, on_devices) <= max(4 * rounding, ONE_SUM)
    assert run("drawn").on_devices(open_mpi, ranks, *layout, order="7").bits() == on_devices.bits()

    steps = on_devices.metrics()
    # The numbers of a step come back in one copy, which is its one wait, and a step that shows statistics has no more.
    assert [(line["device_waits"], line["copies_to_host"]) for line in steps] == [(1 + fetches, 1 + fetches)] * 8
    # The tokens of each step go there, most of them with the step before, and once the angles of positions.
    assert sum(line["copies_to_device"] for line in steps) == 8 + 1
    assert all("device_waits" not in line for line in on_cpus.metrics())


@pytest.mark.parametrize("fault", [pytest.param("train.after_step:kill@5", marks=pytest.mark.slow), "checkpoint.piece:kill@4"])
def test_a_run_of_devices_that_was_killed_continues_with_the_bits_of_one_that_was_not(
        open_mpi, program, data, tmp_path, devices, fault):  # noqa: F811
    ranks, layout, _ = LAYOUTS["experts"]
    whole = devices("experts")
    killed = GuardedRun(program, tmp_path, data, "killed")
    script = with_fault_on(killed.program, 1, fault, tmp_path / "second_is_killed")
    code, out, err, seconds = open_mpi.run(ranks, script, "train", *killed.words([ON_DEVICES, *layout]))
    assert code != 0 and len(killed.metrics()) < 8 and seconds < SECONDS, out + err
    wait_until_none_trains(killed.config)
    killed.on_devices(open_mpi, ranks, *layout, order="latest")
    assert killed.bits() == whole.bits()


@pytest.mark.slow  # test_without_mpi has this on CPUs
def test_without_mpi_the_devices_have_the_same_bits_and_end_when_one_rank_is_killed(
        open_mpi, torchrun, program, data, tmp_path, devices):  # noqa: F811
    ranks, layout, _ = LAYOUTS["sharded in bf16"]
    under_mpi = devices("sharded in bf16")
    run = GuardedRun(program, tmp_path, data, "run")
    script = with_fault_on(run.program, 1, "train.after_step:kill@5", tmp_path / "second_is_killed")
    code, out, err, seconds = torchrun.run(ranks, script, "train", *run.words([ON_DEVICES, *layout]))
    assert torchrun.codes == [78, 137] and not torchrun.ended and seconds < SECONDS, out + err
    run.on_devices(torchrun, ranks, *layout)
    assert run.bits() == under_mpi.bits()


def test_a_rank_that_stands_still_ends_the_job_after_the_timeout(open_mpi, program, data, tmp_path):  # noqa: F811
    run = GuardedRun(program, tmp_path, data, "run")
    words = [*ENDLESS, ON_DEVICES, "parallelism.collective_timeout_s=8"]
    process = subprocess.Popen([open_mpi.path, *open_mpi.options, "-n", "2", run.program, "train", *run.words(words)],
                               env=dict(os.environ, OMP_NUM_THREADS="1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 120
        while not ((run.folder / "metrics.jsonl").exists() and run.metrics()) and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(rank_processes(run.config)[-1], signal.SIGSTOP)
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    # Its device stands still, too, since the host plays it: the rank has queued the step or it has not.
    named = r"rank 0 \(\S+\): (step \d+: )?.*(missing: rank 1 \(|guarded:0 has not completed \w+ of \d+ bytes)"
    assert process.returncode == 78 and re.search(named, said), said


@pytest.mark.parametrize("load", ["broadcast", "all_reduce"])
def test_weights_that_one_rank_reads_reach_all_devices(open_mpi, program, data, tmp_path, load):  # noqa: F811
    first = GuardedRun(program, tmp_path, data, "first").alone(ON_CPUS)
    begins = f"checkpoint.resume={first.folder / 'models' / 'step-00000008'}", "train.steps=10", f"checkpoint.load={load}"
    one = GuardedRun(program, tmp_path, data, "one").alone(ON_CPUS, *begins)
    many = GuardedRun(program, tmp_path, data, "many").on_devices(open_mpi, 2, *EXPERTS, *begins, order="3")
    assert_same_training(one, many)


@pytest.mark.slow
def test_a_run_moves_from_devices_to_cpus_of_another_layout_and_back(open_mpi, program, data, tmp_path):  # noqa: F811
    constant = "optimizer.schedule=constant"
    one = GuardedRun(program, tmp_path, data, "one").alone(ON_CPUS, constant, "train.global_batch_size=8")
    many = GuardedRun(program, tmp_path, data, "many")
    (_, experts, _), shared = LAYOUTS["experts"], [*PIPELINE, *STATISTICS]
    batch = [constant, "train.global_batch_size=8"]
    many.on_devices(open_mpi, 2, *experts, *batch, "train.steps=3")
    many.on(open_mpi, 2, ON_CPUS, *shared, *batch, "train.steps=5")
    many.on_devices(open_mpi, 2, *shared, *batch, "train.steps=6")
    many.on_devices(open_mpi, 2, *experts, *batch)
    assert [line["step"] for line in many.metrics()] == list(range(1, 9))
    for a, b in zip(one.metrics(), many.metrics(), strict=True):
        # As test_runs.py: one digit of fp32 on 20 k parameters that no fault would leave unchanged.
        assert a["loss"] == pytest.approx(b["loss"], rel=2e-4), a["step"]


GENERATING = {"llama": (4, [f"--set={field}" for field in (*PIPELINE, *TENSOR)]), "olmoe": (2, [f"--set={field}" for field in EXPERTS])}


@pytest.mark.parametrize("model,orders", [("llama", ["7"]), ("olmoe", ["earliest"]), pytest.param("llama", ["earliest"], marks=pytest.mark.slow)])
def test_generation_on_a_layout_of_devices_gives_the_text_of_transformers(open_mpi, program, tmp_path, model, orders):  # noqa: F811
    ranks, layout = GENERATING[model]
    folder = make_model(tmp_path / "hf", model)
    prompts = make_prompts(5)
    for order in orders:
        code, out, err, _ = open_mpi.run(ranks, program("athanor_on_guarded"), "generate", folder, "--device", "auto", "--max-new-tokens", 12,
                                         "--batch-size", 3, *(word for prompt in prompts for word in ("--prompt", prompt)), *GREEDY, *layout,
                                         env={"ATHANOR_GUARDED_ORDER": order})
        assert code == 0, out + err
        assert answers_of(out) == greedy_theirs(folder, prompts, 12)
