"""The board of a run: what `athanor status` shows of ranks that are stopped, hung or dead, and that no launcher waits for a collector."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest
from launchers import end, with_fault_on
from test_failures import SECONDS
from test_runs import RankRun, data, rank_processes  # noqa: F401

ENDLESS = ["train.steps=100000", "train.validation_interval=0", "checkpoint.interval=0", "checkpoint.model_interval=0",
           "parallelism.expert_parallel_degree=2"]
RANKS = 4


def said_by(run):
    return run.folder.with_name(f"{run.folder.name}-said.txt")


@contextlib.contextmanager
def job(mpi, run, program, *overrides, env=None):
    """A run that continues until the block has ended."""
    words = [mpi.path, *mpi.options, "-n", str(RANKS), str(program), "train", *run.words([*ENDLESS, *overrides])]
    with open(said_by(run), "a") as said:  # an unread pipe fills up, and then the launcher waits for it
        process = subprocess.Popen(words, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
                                   env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})})
    try:
        yield process
    finally:
        if process.poll() is None:  # a rank that is asked to end would save, or sleep on
            for rank in rank_processes(run.config):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rank, signal.SIGKILL)
            end(process)


def status(run, *options):
    return subprocess.run([run.program, "status", run.folder, *options], capture_output=True, text=True, timeout=120)


def until(run, condition, seconds=120):
    """Returns the state of the run as soon as it is as wanted."""
    limit, done = time.monotonic() + seconds, None
    while time.monotonic() < limit:
        done = status(run, "--json")
        if done.returncode == 0 and condition(state := json.loads(done.stdout)):
            return state
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {done.stdout}{done.stderr}")


def trains(state):
    return state["running"] == RANKS and state["step"] >= 2 and state["attempt"] == 1


def report(run):
    """What the collector of this node has written into the run's folder."""
    files = list((run.folder / "board").glob("*.json"))
    return json.loads(files[0].read_text()) if files else None


def process_of(run, rank):
    limit = time.monotonic() + 120
    while not report(run):
        assert time.monotonic() < limit, "no report of the node"
        time.sleep(0.2)
    return report(run)["ranks"][rank]["process"]


def collector_of(run):
    """Returns the process of the run's collector, or None."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if words[1:2] == [b"board-collector"] and str(run.folder).encode() in pathlib.Path(words[2].decode()).read_bytes():
                return int(folder.name)
        except OSError:
            pass
    return None


def test_a_rank_that_was_stopped_is_named_with_those_who_wait_for_it(mpi, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    with job(mpi, run, run.program):
        until(run, trains)
        process = process_of(run, 2)
        os.kill(process, signal.SIGSTOP)
        try:
            state = until(run, lambda s: s["behind"] and s["behind"][0]["waiting"] == RANKS - 1)
            text = status(run).stdout
        finally:
            os.kill(process, signal.SIGCONT)
        late = state["behind"][0]
        assert (late["rank"], late["process"], late["state"], state["num_behind"]) == (2, process, "stopped", 1)
        assert state["stopped"] == 1 and " of group " in late["call"]
        assert f"(process {process}): stopped by a signal" in text and f"{RANKS - 1} ranks wait for its" in text
        until(run, lambda s: s["stopped"] == 0 and not s["behind"])


def test_a_rank_that_hangs_in_code_of_a_user_is_named(mpi, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    script = with_fault_on(run.program, 1, "train.after_step:stall60@3", tmp_path / "second_hangs")
    with job(mpi, run, script):
        state = until(run, lambda s: s["behind"] and s["behind"][0]["waiting"] == RANKS - 1)
        late = state["behind"][0]
        assert (late["rank"], late["state"], late["step"], state["num_behind"]) == (1, "running", 3, 1)
        assert late["change_s"] > 0.9


def test_a_rank_that_was_killed_is_the_first_that_has_gone_in_the_last_report(mpi, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    with job(mpi, run, run.program) as launched:
        until(run, trains)
        collector = collector_of(run)
        os.kill(process_of(run, 1), signal.SIGKILL)
        launched.wait(timeout=SECONDS)
        limit = time.monotonic() + SECONDS
        while pathlib.Path(f"/proc/{collector}").exists() and time.monotonic() < limit:
            time.sleep(0.1)
    ranks = report(run)["ranks"]
    gone = {rank["rank"]: rank["gone_s"] for rank in ranks if rank["state"] == "gone"}
    assert 1 in gone and gone[1] == max(gone.values()), ranks
    done = status(run)
    assert done.returncode == 0 and "gone" in done.stdout, done.stdout + done.stderr


def has_reader(run):
    return (run.program.parent / "athanor-stacks").exists()


def test_stacks_of_ranks_are_shown_and_the_ranks_continue_as_they_were(mpi, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    if not has_reader(run):
        pytest.skip("this build has no athanor-stacks: it needs libdw")
    with job(mpi, run, run.program):
        until(run, trains)
        process = process_of(run, 2)
        os.kill(process, signal.SIGSTOP)
        try:
            until(run, lambda s: s["behind"] and s["behind"][0]["waiting"] == RANKS - 1)
            (late,) = json.loads(status(run, "--json", "--stacks").stdout)["stacks"]
            text = status(run, "--stacks=0").stdout
            assert until(run, lambda s: True)["stopped"] == 1
        finally:
            os.kill(process, signal.SIGCONT)
        assert (late["rank"], late["process"], late["how"]) == (2, process, "debugger")
        assert "main (athanor)" in late["text"] and "libathanor_core" in late["text"], late["text"]
        assert late["groups"] and all(group["started"] >= 0 for group in late["groups"])
        waiting = text.split("\nrank ")[1]
        assert waiting.startswith("0 on "), text
        assert "  waits for " in waiting and "run_training" in waiting and "main (athanor)" in waiting, text
        step = until(run, lambda s: s["stopped"] == 0 and not s["behind"])["step"]
        until(run, lambda s: s["step"] > step + 2)


def on_two_nodes(program, script):
    """Writes a script that runs the program on node0 or node1, two ranks on each, as far as host names go; returns its path."""
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode != 0:
        pytest.skip("no rights to give processes other host names")
    script.write_text(f"""#!/bin/sh
rank=${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-$RANK}}}}
exec unshare --uts sh -c 'hostname "$0" && exec "$@"' node$((rank / 2)) {program} "$@"
""")
    script.chmod(0o755)
    return script


def test_stacks_of_ranks_on_other_nodes_come_by_the_folder_of_the_run(any_launcher, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    with job(any_launcher, run, on_two_nodes(run.program, tmp_path / "on_two_nodes")):
        assert until(run, lambda s: trains(s) and len(s["nodes"]) == 2)["nodes"] == ["node0", "node1"]
        shown = json.loads(status(run, "--json", "--stacks=1,2").stdout)["stacks"]
        assert [(each["rank"], each["node"]) for each in shown] == [(1, "node0"), (2, "node1")], shown
        assert all(each["how"] != "none" and "main" in each["text"] for each in shown), shown
        assert list((run.folder / "board" / "requests").iterdir()) == [], "requests and answers are removed"


def test_ranks_and_nodes_are_probed_at_the_start_and_when_a_user_asks(any_launcher, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    script = with_fault_on(run.program, 1, "train.after_step:stall5@3", tmp_path / "second_sleeps")  # until the next look for a request
    with job(any_launcher, run, script):
        until(run, trains)
        done = status(run, "--probe", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["answer"] == f"{run.folder}/probes.jsonl", done.stdout + done.stderr
        limit = time.monotonic() + 120
        while len(lines := (run.folder / "probes.jsonl").read_text().splitlines()) < 2 and time.monotonic() < limit:
            time.sleep(0.2)
        first, second = map(json.loads, lines)
        assert (first["why"], first["step"], second["why"], second["attempt"]) == ("start", 0, "asked", 1)
        for name in ("gemm_gflops", "memory_gb_s", "ping_us", "link_mb_s"):
            assert len(second[name]) == RANKS and min(second[name]) > 0, second
        assert second["disk_ms"][0] > 0 and second["disk_ms"][1:] == [None] * (RANKS - 1)
        assert not (run.folder / "probe.request").exists()
        until(run, lambda s: s["step"] > second["step"] + 2)


def test_ranks_that_cannot_be_chosen_are_refused(any_launcher, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    with job(any_launcher, run, run.program):
        until(run, trains)
        for words, reason in [("--stacks=4", "there is no rank 4"), ("--stacks=x", "expected numbers"),
                              ("--stacks=0,,1", "expected numbers"), ("--stacks=-1", "expected numbers")]:
            done = status(run, words)
            assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
            assert words in done.stderr and reason in done.stderr


def test_no_launcher_waits_for_a_collector_which_has_none_of_its_descriptors(mpi, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    with job(mpi, run, run.program, "train.steps=60", "train.stop_after=\"20s\"") as launched:
        until(run, lambda s: s["running"] == RANKS)
        collector = collector_of(run)
        files = {os.readlink(each) for each in pathlib.Path(f"/proc/{collector}/fd").iterdir()}
        own = [each for each in files if each != "/dev/null" and "athanor-board-" not in each and not each.startswith(("socket:", "anon_inode:[pidfd]"))]
        sockets = [each for each in files if each.startswith("socket:")]
        assert own == [] and len(sockets) == 2, files  # for reports and for stacks
        os.kill(collector, signal.SIGSTOP)  # it lives as long as it likes
        try:
            assert launched.wait(timeout=120) == 0, said_by(run).read_text()
            assert collector_of(run) == collector
        finally:
            os.kill(collector, signal.SIGCONT)
        limit = time.monotonic() + SECONDS
        while collector_of(run) and time.monotonic() < limit:
            time.sleep(0.1)
        assert collector_of(run) is None, "it does not end"


def test_a_run_that_has_ended_is_told_by_its_history(any_launcher, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run").alone()
    done = status(run)
    assert done.returncode == 0 and "attempt 1 has ended after step 8: complete (exit code 0)" in done.stdout, done.stdout
    assert json.loads(status(run, "--json").stdout)["end"] == {"attempt": 1, "step": 8, "exit_code": 0, "cause": "complete"}


@pytest.mark.parametrize("where", ["/proc/absent", "off"])
def test_a_run_without_a_board_is_the_same_run(program, data, tmp_path, where):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    done = subprocess.run([run.program, "train", *run.words([])], capture_output=True, text=True, env={**os.environ, "ATHANOR_BOARD": where})
    assert done.returncode == 0, done.stderr
    assert ("`athanor status` will not show" in done.stderr) == (where != "off")
    assert not (run.folder / "board").exists()


def test_what_is_no_run_is_refused_in_one_line(program, tmp_path):
    for folder, reason in ((tmp_path / "absent", "is no folder"), (tmp_path, "is no run folder")):
        done = subprocess.run([program("athanor"), "status", folder], capture_output=True, text=True)
        assert done.returncode == 2 and reason in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    (tmp_path / "config.toml").write_text("")
    done = subprocess.run([program("athanor"), "status", tmp_path], capture_output=True, text=True)
    assert done.returncode == 2 and "has no board" in done.stderr, done.stderr
