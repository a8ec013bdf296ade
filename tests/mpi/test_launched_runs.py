"""Trainings under `athanor launch`: what an attempt leaves, and how a run goes on after a failure."""
import json
import os
import subprocess

import pytest
from test_rehearsals import ALLOWED, suffering
from test_runs import RankRun, data  # noqa: F401

pytestmark = pytest.mark.faults


def launched(run, *options, launcher="sockets", ranks=2, overrides=(), expect=0, env=None):
    """Runs a training of some ranks under athanor launch; returns what it said."""
    command = [run.program, "launch", "-n", ranks, "--launcher", launcher, *options, "--", run.program, "train", *run.words(overrides)]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240,
                          env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})})
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
