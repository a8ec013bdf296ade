"""`athanor bench checkpoint`: its figures and their keys, what it leaves behind, and what it refuses. No test checks speed."""
import json
import os

import pytest
from runs import BENCH_CONFIG

CONFIG = BENCH_CONFIG.replace('"is-not-written"', '"disk/is-not-written"\nnum_threads = 1')
KEYS = ["ranks", "parameters", "bytes", "block_bytes", "saves", "folder", "writers", "direct", "step", "save", "write", "load", "memory", "nodes"]
SPREAD = {"median", "min", "max"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run.toml").write_text(CONFIG)
    (tmp_path / "disk").mkdir()
    return tmp_path


def test_the_figures_have_their_keys_and_nothing_is_left(athanor, folder):
    done = athanor.run("bench", "checkpoint", "run.toml", "--saves", 3, "--json", "report.json", cwd=folder)
    report = json.loads((folder / "report.json").read_text())
    assert list(report) == KEYS
    assert report["bytes"] == 12 * report["parameters"] and report["ranks"] == 1 and report["saves"] == 3
    assert report["folder"] == str(folder / "disk")
    spreads = [report["step"]["seconds"], *report["save"].values()]
    for spread in spreads:
        assert set(spread) == SPREAD and 0 < spread["min"] <= spread["median"] <= spread["max"]
    for compared in (report["write"], report["load"]):
        assert list(compared) == ["seconds", "mb_s", "plain_seconds", "plain_mb_s", "ratio"]
        assert compared["mb_s"] == pytest.approx(report["bytes"] / compared["seconds"]["median"] * 1e-6)
    assert report["memory"]["pool_bytes"] >= report["bytes"] and len(report["memory"]["above_pool_bytes"]) == 3
    assert report["nodes"] == [{"node": 0, "bytes": report["bytes"]}]
    assert "of plain writes" in done.stdout and "past the page cache" in done.stdout or not report["direct"]
    assert list((folder / "disk").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == ["disk", "report.json", "run.toml"]


def test_another_folder_can_be_named(athanor, folder):
    (folder / "other").mkdir()
    athanor.run("bench", "checkpoint", "run.toml", "--saves", 1, "--folder", "other", "--json", "report.json", cwd=folder)
    assert json.loads((folder / "report.json").read_text())["folder"] == str(folder / "other")
    assert list((folder / "other").iterdir()) == []


@pytest.mark.parametrize("arguments, named", [
    (["run.toml", "--folder", "nowhere"], "--folder"), (["nowhere.toml"], "nowhere.toml"), (["run.toml", "--saves", 0], "--saves"),
    (["run.toml", "--set", "data.seq_len=0"], "data.seq_len"),
    pytest.param(["run.toml", "--set", "train.nonsense=1"], "train.nonsense", marks=pytest.mark.slow),
    (["run.toml", "--set", "parallelism.tensor_parallel_degree=2"], "mpirun -n 2")])
def test_wrong_input_ends_with_2_and_one_line(athanor, folder, arguments, named):
    done = athanor.run("bench", "checkpoint", *arguments, cwd=folder, check=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and named in done.stderr, done.stderr


def test_what_differs_from_what_was_saved_is_not_timed_and_nothing_is_left(athanor, folder):
    done = athanor.run("bench", "checkpoint", "run.toml", cwd=folder, check=False, env=dict(os.environ, ATHANOR_FAULT="bench.result:eio@1"))
    assert done.returncode == 1 and "wrong, so not timed" in done.stderr and "median" not in done.stdout, done.stderr
    assert list((folder / "disk").iterdir()) == []


def test_a_disk_that_fails_is_named_and_nothing_is_left(athanor, folder):
    done = athanor.run("bench", "checkpoint", "run.toml", cwd=folder, check=False, env=dict(os.environ, ATHANOR_FAULT="checkpoint.piece:enospc@9"))
    assert done.returncode == 2 and "No space left" in done.stderr, done.stderr
    assert list((folder / "disk").iterdir()) == []
