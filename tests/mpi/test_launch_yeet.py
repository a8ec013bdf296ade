"""`athanor launch --yeet`: the ranks use the program, its libraries and the data on the node's own disk."""
import os
import shutil
import subprocess

import pytest
from test_launched_runs import launched
from test_runs import RankRun, data  # noqa: F401


@pytest.mark.slow  # libtorch is half a gigabyte
@pytest.mark.parametrize("launcher", ["sockets", "mpirun"])
def test_a_training_uses_what_was_staged_and_its_first_step_is_timed(launcher, program, data, tmp_path):  # noqa: F811
    if launcher != "sockets" and not shutil.which(launcher):
        pytest.skip("no mpirun on the PATH")
    local = tmp_path / "local"
    plain = RankRun(program, tmp_path, data, "plain")
    launched(plain, launcher=launcher, overrides=["train.steps=4", "train.validation_interval=0"])
    run = RankRun(program, tmp_path, data, "run")
    said = launched(run, "--yeet", local, launcher=launcher, overrides=["train.steps=4", "train.validation_interval=0"])
    assert "the program and its data were on all nodes after" in said and "s after the start of athanor launch" in said, said
    assert f'path = "{local}/' in (run.folder / "config.toml").read_text()
    libraries = subprocess.run(["ldd", local / "libathanor_core.so"], capture_output=True, text=True, check=True).stdout
    for name in ("libathanor.so", "libtorch_cpu.so", "libc10.so"):
        assert any(name in line and str(local) in line for line in libraries.splitlines()), libraries
    # A run that began without it continues with it.
    said = launched(plain, "--yeet", local, launcher=launcher, overrides=["train.steps=8", "train.validation_interval=0"])
    assert "step: 8" in said or (plain.folder / "metrics.jsonl").read_text().count("\n") >= 8, said


def test_other_programs_and_relative_folders_are_refused(program, tmp_path):
    for words, expected in ((["--yeet", "relative", "--", program("athanor"), "train", "x.toml"], "absolute"),
                            (["--yeet", tmp_path, "--", "true"], "not for true")):
        done = subprocess.run([program("athanor"), "launch", "-n", "1", *map(str, words)], capture_output=True, text=True, env=os.environ)
        assert done.returncode == 2 and expected in done.stderr and done.stderr.count("\n") == 1, done.stderr
