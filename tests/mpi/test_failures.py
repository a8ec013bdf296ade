"""What a user sees if one rank of many fails: the job ends within seconds, with one line that states the reason."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# For a job that fails, from its start, on a machine that is busy with other jobs. What does not end by itself is ended by the launcher after
# 120 s (launchers.py), and without MPI by torchrun_like.py, whose jobs tell which ranks it had to end.
SECONDS = 60


# A message of Open MPI's shared memory, in a rank that was reading from another rank's memory when the end of the job freed it.
LATE_READ = re.compile(r"\[\S+:\d+\] Read -1, expected \d+, errno = 3")


def last_line(err):
    return [line for line in err.rstrip().splitlines() if not LATE_READ.fullmatch(line)][-1]


def without_clock(line):
    return re.sub(r"^\d\d:\d\d:\d\d E ", "", line)


@pytest.mark.every_launcher
def test_a_rank_that_throws_ends_the_job_and_has_the_last_word(launcher, program):
    code, out, err, seconds = launcher.run(4, program("comm_ranks"), "throw", 2)
    assert re.fullmatch(r"rank 2 \(\S+\): step 7: shard 3 is short", without_clock(last_line(err))), out + err
    assert code == 2
    assert seconds < SECONDS


def test_what_all_ranks_throw_is_said_once(launcher, program):
    code, out, err, seconds = launcher.run(4, program("comm_ranks"), "throw", "all")
    assert re.fullmatch(r"rank 0 \(\S+\): step 7: shard 3 is short", without_clock(err.strip())), out + err
    assert code == 2
    assert seconds < SECONDS


def test_a_rank_out_of_order_is_named_with_both_calls(launcher, program):
    code, out, err, seconds = launcher.run(4, program("comm_ranks"), "disorder", 1)
    line = last_line(err)
    assert "rank 1 (" in line and "broadcast" in line and "all_reduce" in line and "step 7" in line, out + err
    assert code == 78
    assert seconds < SECONDS


def test_a_frozen_rank_is_named_when_its_collective_is_overdue(launcher, program):
    code, out, err, seconds = launcher.run(4, program("comm_ranks"), "freeze", 1)
    line = last_line(err)
    assert "missing: rank 1 (" in line and "rank 2" not in line.partition("missing:")[2], out + err
    assert "step 7" in line and "all_reduce" in line
    assert code == 78
    assert seconds < SECONDS


def test_a_wrong_configuration_is_told_once_before_anything_is_opened(launcher, program, tmp_path):
    config = tmp_path / "wrong.toml"
    config.write_text("[model]\nhiden_size = 3\n")
    code, out, err, seconds = launcher.run(4, program("athanor"), "train", config)
    assert err.count("hiden_size") == 1 and len(err.strip().splitlines()) == 1, out + err
    assert code == 2
    assert seconds < SECONDS


def test_a_wrong_command_line_is_told_once(launcher, program):
    code, out, err, seconds = launcher.run(4, program("athanor"), "trian")
    assert (out + err).count("trian") == 1, out + err
    assert code == 2
    assert seconds < SECONDS


def test_every_fault_of_a_layout_is_told_once_before_anything_is_opened(launcher, program, tmp_path):
    faulty = ["--set", "parallelism.expert_parallel_degree=8", "--set", "train.global_batch_size=13"]
    data = ["--set", "data.path=none", "--set", f"train.run_dir={tmp_path / 'run'}"]
    code, out, err, seconds = launcher.run(4, program("athanor"), "train", ROOT / "recipes/olmoe-tiny.toml", *faulty, *data)
    assert err.count("expert_parallel_degree (8)") == 1 and err.count("batch_size (13)") == 1, out + err
    assert code == 2 and not (tmp_path / "run").exists()
    assert seconds < SECONDS


def test_several_copies_of_a_command_that_is_one_process_are_refused_once(launcher, program, tmp_path):
    code, out, err, seconds = launcher.run(2, program("athanor"), "export", tmp_path / "run", "--out", tmp_path / "out")
    assert err.count("is one process") == 1 and f"the launcher of {launcher.name} started 2" in err, out + err
    assert code == 2 and not (tmp_path / "out").exists()
    assert seconds < SECONDS
