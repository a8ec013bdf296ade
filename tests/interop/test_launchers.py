"""What users see if they start several copies by a launcher that we cannot join, or of a command that is one process."""
import os
import subprocess

import pytest

SRUN = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "64", "SLURM_PROCID": "5"}
BATCH = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "64", "SLURM_PROCID": "0"}


@pytest.fixture
def started_by(athanor):
    """Returns a function that runs the program with a launcher's variables."""
    def run(variables, *arguments):
        return subprocess.run([str(athanor.path), *map(str, arguments)], env={**os.environ, **variables}, capture_output=True, text=True)
    return run


@pytest.mark.parametrize("command", ["train", "verify"])
def test_a_job_is_refused_by_a_step_without_pmi_before_anything_is_read_or_written(started_by, tmp_path, command):
    done = started_by(SRUN, command, tmp_path / "not-there.toml", "--set", f"train.run_dir={tmp_path / 'run'}")
    assert done.returncode == 2 and not list(tmp_path.iterdir())
    assert "srun started several copies" in done.stderr and "srun --mpi=pmix" in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("command", [["export", "run", "--out", "out"], ["import", "folder", "--out", "out"],
                                     ["prepare", "--tokenizer", "t.json", "--out", "out", "docs.jsonl"],
                                     ["tokenizer", "train", "--vocab-size", "300", "--out", "out", "docs.jsonl"], ["smoke"], ["bench", "gemm"]], ids=lambda words: words[0])
def test_copies_of_one_process_are_refused(started_by, tmp_path, command):
    for word in ("docs.jsonl", "t.json"):
        (tmp_path / word).write_text("{}\n")
    words = [str(tmp_path / word) if word in ("out", "run", "folder", "docs.jsonl", "t.json") else word for word in command]
    done = started_by(SRUN, *words)
    assert done.returncode == 2 and "is one process, but srun started several of it" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_generation_on_several_ranks_is_a_job(started_by, tmp_path):
    done = started_by(SRUN, "generate", tmp_path, "--prompt", "x")
    assert done.returncode == 2 and "srun started several copies" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_batch_script_and_what_only_reads_are_not_refused(started_by, tmp_path):
    for variables in (BATCH, {**BATCH, "SLURM_STEP_NUM_TASKS": "1"}):
        done = started_by(variables, "train", tmp_path / "not-there.toml")
        assert "not-there.toml" in done.stderr and "srun" not in done.stderr, done.stderr
    assert started_by(SRUN, "config").returncode == 0
    assert started_by(SRUN, "export", "--help").returncode == 0
