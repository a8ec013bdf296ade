"""Trainings under `athanor launch`: what an attempt leaves, and how a run continues after a failure."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from test_rehearsals import ALLOWED, suffering
from test_runs import ENDLESS, RankRun, data  # noqa: F401

pytestmark = pytest.mark.faults


def launched(run, *options, launcher="sockets", ranks=2, overrides=(), expect=0, env=None):
    """Runs a training of some ranks under athanor launch; returns its standard error."""
    command = [run.program, "launch", "-n", ranks, "--launcher", launcher, *options, "--", run.program, "train", *run.words(overrides)]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **(env or {})})
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stderr


def verdicts(run):
    return [json.loads((each / "verdict.json").read_text()) for each in sorted((run.folder / "attempts").iterdir())]


def test_a_training_that_fails_leaves_its_log_and_the_host_that_it_names(program, data, tmp_path):  # noqa: F811
    run = suffering(RankRun(program, tmp_path, data, "run"), kind="nan", step=3, sequence=2, phase="backward")
    said = launched(run, expect=76, env=ALLOWED)
    (verdict,) = verdicts(run)
    assert (verdict["kind"], verdict["exit_code"], verdict["first_step"], verdict["last_step"]) == ("numbers", 76, 1, 2), verdict
    assert "step 3" in verdict["evidence"][1]["text"] and "attempt 1 ended with code 76 after step 2: numbers" in said, said
    assert "step 3" in (run.folder / "attempts/001/log").read_text()


@pytest.mark.parametrize("launcher", ["sockets", pytest.param("mpirun", marks=pytest.mark.slow)])  # tests/faults has mpirun
def test_a_run_whose_rank_is_killed_completes_after_a_retry_with_the_weights_of_an_undisturbed_run(launcher, program, data, tmp_path):  # noqa: F811
    if launcher != "sockets" and not shutil.which(launcher):
        pytest.skip("no mpirun on the PATH")
    run = suffering(RankRun(program, tmp_path, data, "run"), kind="kill", step=5, rank=1, phase="forward")
    said = launched(run, "--retries", "1", launcher=launcher, env=ALLOWED)
    first, second = verdicts(run)
    assert (first["first_step"], first["last_step"], second["first_step"], second["last_step"]) == (1, 4, 4, 8), (first, second)
    assert first["exit_code"] == 137 and second["kind"] == "success" and said.splitlines()[-1].endswith("complete after 2 attempts"), said
    plain = RankRun(program, tmp_path, data, "plain")
    launched(plain, launcher=launcher)
    weights = [sorted((each.folder / "models/step-00000008").glob("*.safetensors")) for each in (run, plain)]
    assert weights[0] and [each.read_bytes() for each in weights[0]] == [each.read_bytes() for each in weights[1]]
    shown = subprocess.run([run.program, "status", run.folder], capture_output=True, text=True, check=True).stdout
    assert "2 attempts of athanor launch:" in shown and "  2: code 0, success, steps 4 to 8\n" in shown, shown
    json_of = subprocess.run([run.program, "status", "--json", run.folder], capture_output=True, text=True, check=True).stdout
    assert [each["exit_code"] for each in json.loads(json_of)["attempts"]] == [137, 0]


def test_a_run_of_which_a_rank_stands_still_is_ended_with_its_board_and_stacks(program, data, tmp_path):  # noqa: F811
    run = suffering(RankRun(program, tmp_path, data, "run"), kind="stop", step=5, rank=1, phase="forward")
    said = launched(run, "--timeout", "6", expect=124, env=ALLOWED)
    (verdict,) = verdicts(run)
    assert (verdict["kind"], verdict["hosts"]) == ("silent_hang", [os.uname().nodename]) and verdict["last_step"] >= 4, (verdict, said)
    board = (run.folder / "attempts/001/board.txt").read_text()
    assert "rank 1 on" in board and "stopped" in board and "thread" in board, board


def test_sigterm_to_launch_leaves_the_ranks_of_mpirun_the_time_to_save(program, data, tmp_path):  # noqa: F811
    if not shutil.which("mpirun"):
        pytest.skip("no mpirun on the PATH")
    # A step takes longer than the second that mpirun leaves its ranks, and than the one that they wait for launch's word.
    run = RankRun(program, tmp_path, data, "run")
    for rank in range(2):
        suffering(run, kind="slow", step=1, steps=1000, rank=rank, phase="update", seconds=4)
    command = [run.program, "launch", "-n", 2, "--launcher", "mpirun", "--", run.program, "train", *run.words(ENDLESS)]
    environment = {**ALLOWED, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    process = subprocess.Popen([str(word) for word in command], stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 120
    while not ((run.folder / "metrics.jsonl").exists() and run.metrics()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[1]
    last = run.metrics()[-1]["step"]
    assert run.checkpoint(last).exists() and f"stopped by SIGTERM after step {last}" in (run.folder / "log/train.log").read_text(), said
    assert process.returncode == 143 and f"attempt 1 ended with code 143 after step {last}: user_cancel" in said, said
    assert (run.folder / "attempts/001/stop").read_text() == "SIGTERM\n" and verdicts(run)[0]["kind"] == "user_cancel", said
