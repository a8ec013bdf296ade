"""How a run reacts to events of its process: broken pipes, signals while it starts, closed streams, a full disk."""
import json
import os
import re
import resource
import signal
import subprocess
import time

import pytest

import runs
from runs import ENDLESS, events


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return runs.make_data(athanor, tmp_path_factory.mktemp("data"))


@pytest.fixture
def run(athanor, tmp_path, data):
    return runs.Run(athanor, tmp_path, data)


def start(run, *overrides, **options):
    settings = [part for override in overrides for part in ("--set", override)]
    return subprocess.Popen([str(run.athanor.path), "train", str(run.config), *settings], text=True, **options)


def test_a_run_whose_reader_is_gone_goes_on_to_its_end(run):
    process = start(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline().startswith("step: ")
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(300) == 0, said
    assert said.count("cannot be written any more") == 1 and len(run.metrics()) == 8


def test_a_run_whose_output_goes_to_a_full_disk_goes_on_to_its_end(run):
    with open("/dev/full", "w") as full:
        process = start(run, stdout=full, stderr=subprocess.PIPE)
        said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    assert said.count("cannot be written any more") == 1 and len(run.metrics()) == 8


def test_an_interrupt_that_ends_the_reader_as_well_saves_the_step(run):
    """Ctrl-C reaches every process of `athanor train | tee log`."""
    process = start(run, *ENDLESS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline().startswith("step: ")
    process.stdout.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    assert len(run.checkpoints()) == 1 and events(run)[-1]["exit_code"] == 130


def test_files_do_not_take_the_place_of_closed_streams(run):
    settings = " ".join(f"--set {each}" for each in ("train.steps=3", "checkpoint.interval=3"))
    done = subprocess.run(["bash", "-c", f"{run.athanor.path} train {run.config} {settings} <&- >&- 2>&-"], check=False)
    assert done.returncode == 0
    assert "step: " not in (run.folder / "log" / "train.log").read_text()
    assert all(json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines())


def test_a_signal_while_a_run_starts_ends_it_before_its_folder_is_made(run):
    process = start(run, *ENDLESS, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not (run.folder / "lock").exists() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 143, err
    if (run.folder / "events.jsonl").exists():  # it has passed its checks by then
        assert events(run)[-1]["event"] == "end" and events(run)[-1]["exit_code"] == 143
    else:
        assert "nothing was changed" in err and not run.folder.exists()
    run.train()


def test_a_disk_that_fills_while_the_folder_is_opened_is_an_io_failure_and_not_a_refusal(run):
    def leave_one_kibibyte():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    process = start(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=leave_one_kibibyte)
    assert process.wait(300) == 74, process.stderr.read()
    assert events(run)[-1] | {"event": "end", "exit_code": 74} == events(run)[-1]


def test_a_disk_without_room_for_the_lock_leaves_nothing(run):
    def leave_nothing():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    process = start(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=leave_nothing)
    assert process.wait(300) in (2, 74) and not run.folder.exists(), process.stderr.read()


def test_a_rank_that_a_library_does_not_see_is_refused_and_does_not_train_alone(run):
    """Simulates an mpirun and an MPI library of two installations: each process is a world of one."""
    environment = {**os.environ, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_MCA_ess": "singleton",
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = run.athanor.run("train", run.config, env=environment, check=False)
    if "its plugin cannot be opened" in done.stderr:
        pytest.skip("no plugin for Open MPI")
    assert done.returncode == 2 and "of different installations" in done.stderr, done.stderr
    assert not run.folder.exists()


def test_checkpoints_that_cannot_be_read_are_not_called_damaged(run):
    run.train("train.steps=6")
    done = run.train(fault="checkpoint.open:eio@1+", check=False)
    assert done.returncode == 74 and "cannot open" in done.stderr and "move them away" not in done.stderr, done.stderr
    run.train()


def in_mib(text):
    """The bytes of "141.38MiB", in MiB."""
    number, unit = re.fullmatch(r"([\d.]+)(KiB|MiB|GiB|B)", text).groups()
    return float(number) * {"B": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 2**10}[unit]


@pytest.mark.parametrize("family", [pytest.param("olmo", marks=pytest.mark.slow), "olmoe"])
def test_the_memory_that_a_start_prints_includes_the_program_and_is_near_the_peak(athanor, tmp_path, data, family):
    """docs/run-folder.md states how near. On Athanor's own paths: the library's kernels take memory that no formula knows."""
    run = runs.Run(athanor, tmp_path, data, family)
    settings = ["--set", "train.dtype=float32", "--set", "model.hidden_size=256", "--set", "model.intermediate_size=512"]
    done = athanor.run("train", run.config, *settings, env={**os.environ, "ATHANOR_MATMUL": "avx2"})
    line = next(line for line in done.stderr.splitlines() if "memory: about" in line)
    total, program, *others = [in_mib(figure) for figure in re.findall(r"[\d.]+(?:[KMG]iB|B)\b", line.split(" free")[0])][:6]
    assert total == pytest.approx(program + sum(others), abs=0.1), line
    peak = max(step["peak_memory_bytes"] for step in run.metrics()) / 2**20
    assert program > 30 and abs(peak - total) < 40, (line, peak)
