"""What ranks other than the first report: each has its own file, and ATHANOR_LOG_RANK shows one more on the terminal."""
import os
import re
import subprocess

import pytest

from launchers import with_fault_on, with_variable_on
from test_runs import PIPELINE, RankRun, data, open_mpi  # noqa: F401

SAVES_NOTHING = ["checkpoint.interval=0", "checkpoint.model_interval=0", "train.validation_interval=0"]
FEWER = "this rank computes with 1 of the usual 2 threads (OMP_NUM_THREADS)"


def rank_logs(run):
    return {path.name: path.read_text() for path in (run.folder / "log").glob("*/rank-*.log")}


def run_with_a_slow_rank(open_mpi, run, folder, *overrides, expect=0):  # noqa: F811
    """Rank 1 has fewer threads than the others, and warns of it."""
    run.config.write_text(run.config.read_text().replace("\nnum_threads = 1\n", "\nnum_threads = 0\n"))
    program, run.program = run.program, with_variable_on(run.program, 1, "OMP_NUM_THREADS=1", folder / "fewer")
    if "--bind-to" not in open_mpi.options:  # else two ranks get a processor each
        open_mpi.options.extend(["--bind-to", "none"])
    run.on(open_mpi, 2, *SAVES_NOTHING, *overrides, expect=expect, env={"OMP_NUM_THREADS": "2"})
    run.program = program
    return run


two_processors = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="threads differ only where there are two processors")


@two_processors
def test_a_warning_of_one_rank_is_in_a_file_of_its_host_and_not_on_the_terminal(open_mpi, program, data, tmp_path):  # noqa: F811
    run = run_with_a_slow_rank(open_mpi, RankRun(program, tmp_path, data, "run"), tmp_path)
    host = os.uname().nodename
    assert [str(path.relative_to(run.folder)) for path in run.folder.glob("log/*/*")] == [f"log/{host}/rank-00001.log"]
    line = rank_logs(run)["rank-00001.log"].splitlines()[0]
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d W ", line) and FEWER in line, line
    assert FEWER not in run.said
    assert f"1 of 2 ranks have fewer threads than the others with 2, and each step waits for them: rank 1 ({host}) with 1" in run.said
    before = rank_logs(run)
    run_with_a_slow_rank(open_mpi, run, tmp_path, "checkpoint.resume=never", expect=2)
    assert rank_logs(run) == before  # a start that is refused writes nothing


def test_what_every_rank_finds_makes_no_files(open_mpi, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    run.on(open_mpi, 2, *SAVES_NOTHING, *PIPELINE, "train.global_batch_size=2", "train.micro_batch_size=2")
    assert " W 1 microbatches do not fill 2 pipeline ranks" in run.said, run.said
    assert [path.name for path in (run.folder / "log").iterdir()] == ["train.log"]


def test_an_error_of_one_rank_is_on_the_terminal_and_in_its_file_with_the_step(open_mpi, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    script = with_fault_on(run.program, 2, "data.read:eio@3+", tmp_path / "third_cannot_read")
    code, out, err, _ = open_mpi.run(4, script, "train", *run.words([*SAVES_NOTHING, "data.verify=false"]))
    assert code == 74
    said = re.search(r" E (rank 2 \(\S+\): step (\d+): cannot read .*)", err)
    assert said, out + err
    assert "rank-00002.log" in rank_logs(run)
    assert f" E {said[1]}\n" in rank_logs(run)["rank-00002.log"]


@two_processors
def test_a_log_that_cannot_be_written_does_not_end_the_run(open_mpi, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    (run.folder / "log").mkdir(parents=True)
    (run.folder / "log" / os.uname().nodename).write_text("in the way of the folder")
    (run.folder / "events.jsonl").write_text("")
    run_with_a_slow_rank(open_mpi, run, tmp_path)
    assert [line["step"] for line in run.metrics()] == list(range(1, 9))
    assert run.said.count("the run continues, and this message is not in the file: ") == 1
    assert FEWER in run.said


def test_a_rank_that_is_named_is_on_the_terminal_too(mpi, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    run.on(mpi, 2, *SAVES_NOTHING, env={"ATHANOR_LOG_RANK": "1"})
    assert re.search(r" I rank 1 \(\S+\): memory: about \S+ needed on rank 1, ", run.said), run.said
    assert "rank 0 (" not in run.said
    assert not rank_logs(run)


@pytest.mark.parametrize("wrong", ["2", pytest.param("one", marks=pytest.mark.slow), pytest.param("0,1", marks=pytest.mark.slow)])
def test_a_rank_that_does_not_exist_is_refused_once_with_those_that_do(open_mpi, program, data, tmp_path, wrong):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    run.on(open_mpi, 2, *SAVES_NOTHING, env={"ATHANOR_LOG_RANK": wrong}, expect=2)
    said = f'ATHANOR_LOG_RANK is "{wrong}", but it takes the number of one rank, 0 to 1 in this job'
    assert run.said.count(said) == 1, run.said
    assert not run.folder.exists()


def test_a_run_of_one_rank_takes_only_rank_0(program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    command = [run.program, "train", *run.words([*SAVES_NOTHING, "train.steps=4"])]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "ATHANOR_LOG_RANK": "1"})
    assert done.returncode == 2 and "which is 0 in this job" in done.stderr, done.stderr
    assert subprocess.run(command, env={**os.environ, "ATHANOR_LOG_RANK": "0"}, capture_output=True).returncode == 0
