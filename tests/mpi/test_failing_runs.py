"""Whole runs in which a rank fails: what the user reads last, and how soon."""
import json
import re
import shutil

from test_failures import SECONDS, last_line, without_clock
from test_runs import RankRun, data  # noqa: F401

LAYOUT = ["parallelism.expert_parallel_degree=2", "checkpoint.interval=0", "checkpoint.model_interval=0", "train.validation_interval=0"]


def start(mpi, program, data, folder, *overrides, env=None):  # noqa: F811
    run = RankRun(program, folder, data, "run")
    return run, mpi.run(4, run.program, "train", *run.words([*LAYOUT, *overrides]), env=env)


def spoil(data, folder):  # noqa: F811
    """A copy of prepared data with the same manifest, whose tokens are beyond any vocabulary."""
    shutil.copytree(data, folder)
    for shard in folder.rglob("*.npy"):
        content = bytearray(shard.read_bytes())
        begin = 10 + int.from_bytes(content[8:10], "little")
        content[begin:] = b"\xfe" * (len(content) - begin)
        shard.chmod(0o644)
        shard.write_bytes(content)
    return folder


def last_words(run):
    return json.loads((run.folder / "log" / "last-words.json").read_text())


def events(run):
    return [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]


def test_what_one_rank_meets_in_a_step_ends_all_and_names_rank_host_and_step(mpi, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    bad = spoil(data, tmp_path / "spoilt")
    script = tmp_path / "third_reads_elsewhere"
    script.write_text('#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 2 ] && set -- "$@" --set data.path=' + f"{bad}\n"
                      f'exec {run.program} "$@"\n')
    script.chmod(0o755)
    code, out, err, seconds = mpi.run(4, script, "train", *run.words(LAYOUT))
    assert re.fullmatch(r"rank 2 \(\S+\): step 1: .*", without_clock(last_line(err))), out + err
    assert code == 74  # data that fail in a run
    words = last_words(run)
    assert (words["rank"], words["step"], words["cause"], words["exit_code"]) == (2, 1, "io", 74)
    ends = [line for line in events(run) if line["event"] == "end"]
    assert len(ends) == 1 and ends[0]["rank"] == 2
    assert seconds < 2 * SECONDS


def test_a_loss_that_is_not_finite_is_told_once(mpi, program, data, tmp_path):  # noqa: F811
    run, (code, out, err, seconds) = start(mpi, program, data, tmp_path, "optimizer.lr=1e30", "optimizer.min_lr=0", "optimizer.warmup_steps=0")
    assert re.match(r"rank 0 \(\S+\): step \d+: the loss is", without_clock(last_line(err))), out + err
    assert err.count("Nothing was updated") == 1
    assert code == 76
    assert last_words(run)["cause"] == "numbers"
    assert seconds < 2 * SECONDS
