"""The board of runs over two virtual hosts, seen from the login node (`head`) and from each host; and what launchers and Slurm do with collectors."""
import contextlib
import json
import os
import time

import pytest
from cluster_runs import ENDLESS

RANKS = 4  # two on each host
LATE_S = 15 + 5  # three reports of 5 s that do not come, and what a busy machine needs


def words_of(overrides):
    return [word for each in overrides for word in ("--set", each)]


def mpirun(hosts, program, run, *overrides):
    return ["mpirun", *hosts.mpirun_options(), "-x", "ATHANOR_ALLOW_FAULTS", "-wdir", run.home, "-H", "node1:2,node2:2", "-n", RANKS,
            program, "train", run.config, *words_of(overrides)]


@contextlib.contextmanager
def job(hosts, run, command, host="node1", env=None):
    """A job that continues until the block has ended. The processes that it has then are ended, all of them within the hosts."""
    with open(run.home / "job.log", "w", encoding="utf-8") as said:
        process = hosts.start(host, command, env=env or {**os.environ, "ATHANOR_ALLOW_FAULTS": "1"}, stdout=said, stderr=said)
        try:
            yield process
        finally:
            hosts.run("head", ["pkill", "-CONT", "-f", "board-collector|" + str(run.config)])
            hosts.run("head", ["pkill", "-KILL", "-f", str(run.config)])
            process.wait()
            until(lambda: not collectors(hosts), 30)


def until(holds, seconds=60, why=lambda: ""):
    limit = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < limit, f"not within {seconds} s: {why()}"
        time.sleep(0.2)
    return found


def status(hosts, program, run, where, *options):
    done = hosts.run(where, [program, "status", run.folder, *options], timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def until_status(hosts, program, run, holds, where="head", seconds=60):
    """Returns the state of the run, as seen on a host, as soon as it is as wanted."""
    last = []

    def look():
        done = hosts.run(where, [program, "status", run.folder, "--json"], timeout=90)
        last[:] = [done.stdout + done.stderr + (run.home / "job.log").read_text()[-2000:]]
        return done.returncode == 0 and holds(state := json.loads(done.stdout)) and state
    return until(look, seconds, lambda: last)


def trains(state):
    return state["running"] == RANKS and state["step"] >= 2 and len(state["nodes"]) == 2


def report(run, host):
    return json.loads((run.folder / "board" / f"{host}.json").read_text())


def process_of(run, rank):
    (found,) = [each["process"] for host in ("node1", "node2") for each in report(run, host)["ranks"] if each["rank"] == rank]
    return found


def collectors(hosts):
    """Returns the processes of collectors on all hosts, as they are numbered inside."""
    return hosts.run("head", ["pgrep", "-f", "^[^ ]* board-collector "]).stdout.split()


def processes_on(hosts, name):
    """Returns all processes of a host except the one that keeps it, as they are numbered inside."""
    keeper = (hosts.folder / f"{name}.pid").read_text().strip()
    return hosts.check("head", f"""
        for each in /proc/[0-9]*; do
          if [ "$(readlink $each/ns/net)" = "$(readlink /proc/{keeper}/ns/net)" ] && [ $each != /proc/{keeper} ]; then basename $each; fi
        done""").split()


def send(hosts, name, processes):
    hosts.run("head", ["kill", f"-{name}", *processes])


def left_in_memory(hosts):
    return [host + name for host in hosts.names for name in hosts.run(host, ["ls", "/dev/shm"]).stdout.split() if "athanor" in name]


def until_collectors_have_ended(hosts):
    until(lambda: not collectors(hosts), 30)
    assert left_in_memory(hosts) == []


def stacks(hosts, program, run, where, ranks):
    answer = json.loads(status(hosts, program, run, where, "--json", f"--stacks={ranks}"))
    assert "unanswered" not in answer, answer
    return {each["rank"]: each for each in answer["stacks"]}


def test_the_login_node_and_each_host_show_all_ranks_and_their_stacks(hosts, program, run):
    with job(hosts, run, mpirun(hosts, program, run, *ENDLESS)):
        until_status(hosts, program, run, trains)
        for where in ("head", *hosts.names):
            state = until_status(hosts, program, run, trains, where, 5)
            assert (state["nodes"], state["job_ranks"], state["behind"]) == (["node1", "node2"], RANKS, []), state
            shown = stacks(hosts, program, run, where, "0,1,2,3")
            assert {rank: each["node"] for rank, each in shown.items()} == {0: "node1", 1: "node1", 2: "node2", 3: "node2"}
            assert all(each["process"] == process_of(run, rank) for rank, each in shown.items())
            assert all("main" in each["text"] and each["how"] != "none" for each in shown.values()), shown
        assert list((run.folder / "board" / "requests").iterdir()) == [], "requests and answers are removed"
        step = until_status(hosts, program, run, trains)["step"]
        until_status(hosts, program, run, lambda state: state["step"] > step + 2)
    assert left_in_memory(hosts) == []


def test_a_rank_that_was_stopped_on_another_host_is_named_with_its_stack(hosts, program, run):
    with job(hosts, run, mpirun(hosts, program, run, *ENDLESS)):
        until_status(hosts, program, run, trains)
        process = process_of(run, 3)
        send(hosts, "STOP", [process])
        state = until_status(hosts, program, run, lambda state: state["behind"] and state["behind"][0]["waiting"] == RANKS - 1)
        (late,) = state["behind"]
        assert (late["rank"], late["node"], late["process"], late["state"]) == (3, "node2", process, "stopped"), state
        text = status(hosts, program, run, "head", "--stacks")
        assert f"rank 3 on node2 (process {process}, stopped)" in text, text
        assert "main (athanor)" in text or not has_reader_of(program), text
        until_status(hosts, program, run, lambda state: state["stopped"] == 1, seconds=1)
        send(hosts, "CONT", [process])
        until_status(hosts, program, run, lambda state: state["stopped"] == 0 and not state["behind"])


def has_reader_of(program):
    return program.with_name("athanor-stacks").exists()


def hang_at_third_step(run, rank):
    run.config.write_text(run.config.read_text() + f'\n[[faults.plan]]\nkind = "hang"\nstep = 3\nrank = {rank}\nphase = "forward"\n')


def test_a_rank_that_hangs_in_compute_on_another_host_is_named_with_its_stack(hosts, program, run):
    hang_at_third_step(run, 2)
    with job(hosts, run, mpirun(hosts, program, run, *ENDLESS)):
        state = until_status(hosts, program, run, lambda state: state["behind"] and state["behind"][0]["waiting"] == RANKS - 1)
        (late,) = state["behind"]
        assert (late["rank"], late["node"], late["state"], late["step"], late["phase"]) == (2, "node2", "running", 3, "forward"), state
        (shown,) = json.loads(status(hosts, program, run, "head", "--json", "--stacks"))["stacks"]
        assert (shown["rank"], shown["node"]) == (2, "node2") and "Rehearsals::act" in shown["text"], shown


def test_a_host_that_was_frozen_is_named_and_is_not_waited_for(hosts, program, run):
    with job(hosts, run, mpirun(hosts, program, run, *ENDLESS)):
        until_status(hosts, program, run, trains)
        frozen = processes_on(hosts, "node2")
        send(hosts, "STOP", frozen)
        state = until_status(hosts, program, run, lambda state: state["num_behind"] == 2, seconds=LATE_S + 10)
        assert [(each["rank"], each["node"]) for each in state["behind"]] == [(2, "node2"), (3, "node2")], state
        assert all(each["silent_s"] > 15 and each["waiting"] == 2 for each in state["behind"]), state
        assert [(each["node"], each["ranks"]) for each in state["late"]] == [("node2", [2, 3])], state
        begin = time.monotonic()
        answer = json.loads(status(hosts, program, run, "head", "--json", "--stacks=0,2"))
        assert 10 <= time.monotonic() - begin < 20, "the interval of reports and 5 s"
        assert answer["unanswered"] == ["node2"]
        first, second = answer["stacks"]
        assert first["how"] != "none" and second["how"] == "none" and "has not answered within 10 s" in second["text"], answer
        send(hosts, "CONT", frozen)
        until_status(hosts, program, run, lambda state: not state["behind"] and "late" not in state)
        assert list((run.folder / "board" / "requests").iterdir()) == [], "an answer that comes too late leaves nothing"


def test_a_host_that_was_lost_is_named_when_the_launcher_has_ended_the_others(hosts, program, run):
    with job(hosts, run, mpirun(hosts, program, run, *ENDLESS)) as launched:
        until_status(hosts, program, run, trains)
        until(lambda: report(run, "node2")["ranks"][0]["attempt"] == 1)
        send(hosts, "KILL", processes_on(hosts, "node2"))
        assert launched.wait(60) != 0
        state = until_status(hosts, program, run, lambda state: "late" in state, seconds=LATE_S + 10)
        assert [(each["node"], each["ranks"]) for each in state["late"]] == [("node2", [2, 3])], state
        lost = [each for each in state["behind"] if "silent_s" in each]
        assert [(each["rank"], each["node"]) for each in lost] == [(2, "node2"), (3, "node2")], state
        assert {(each["rank"], each["state"]) for each in state["behind"] if each not in lost} == {(0, "gone"), (1, "gone")}, state
        assert "no report from node2 (ranks 2 to 3)" in status(hosts, program, run, "head")
    hosts.run("node2", ["sh", "-c", "rm -f /dev/shm/*"])  # what a host that was lost leaves


def ends_with_collectors_alive(hosts, program, run, process, seconds=60):
    """The job ends while collectors live on; these end after it, and leave nothing."""
    until_status(hosts, program, run, trains)
    living = until(lambda: len(found := collectors(hosts)) == 2 and found)
    send(hosts, "STOP", living)
    code = process.wait(seconds)
    assert collectors(hosts) == living, "they were to live on"
    send(hosts, "CONT", living)
    until_collectors_have_ended(hosts)
    return code


ENDS = [*ENDLESS, "train.stop_after=15s"]  # it saves, and ends with code 10


def test_mpirun_ends_with_its_ranks_while_collectors_live(hosts, program, run):
    with job(hosts, run, mpirun(hosts, program, run, *ENDS)) as launched:
        assert ends_with_collectors_alive(hosts, program, run, launched) == 10, (run.home / "job.log").read_text()
    assert "attempt 1 has ended" in status(hosts, program, run, "head")


def srun(program, run, *overrides):
    return ["srun", "--mpi=pmix", f"--chdir={run.home}", "--nodes=2", f"--ntasks={RANKS}", "--ntasks-per-node=2", program, "train", run.config,
            *words_of(overrides)]


def slurm_environment(slurm):
    return {**slurm.environment, "OMPI_MCA_mpi_yield_when_idle": "1", "ATHANOR_ALLOW_FAULTS": "1"}


def test_srun_ends_with_its_ranks_while_collectors_live(slurm, program, run):
    with job(slurm.hosts, run, srun(program, run, *ENDS), "head", slurm_environment(slurm)) as launched:
        assert ends_with_collectors_alive(slurm.hosts, program, run, launched) == 10, (run.home / "job.log").read_text()
    slurm.wait(lambda: slurm("squeue", "--noheader") == "", 10)


def test_a_batch_job_ends_with_its_ranks_while_collectors_live(slurm, program, run):
    script = run.home / "job.sh"
    script.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in map(str, [
        "mpirun", "--allow-run-as-root", "--mca", "mpi_yield_when_idle", "1", "-n", RANKS, program, "train", run.config, *words_of(ENDS)])) + "\n")
    with job(slurm.hosts, run, ["sbatch", "--wait", f"--chdir={run.home}", "--nodes=2", f"--ntasks={RANKS}", "--ntasks-per-node=2",
                                f"--output={run.home}/batch.log", script], "head", slurm_environment(slurm)) as waits:
        assert ends_with_collectors_alive(slurm.hosts, program, run, waits) == 10, (run.home / "batch.log").read_text()


@pytest.mark.parametrize("ranks", ["that end", "that do not end"])
def test_after_scancel_the_history_or_the_last_files_tell_the_end(slurm, program, run, ranks):
    hosts = slurm.hosts
    if ranks == "that do not end":
        hang_at_third_step(run, 2)
    with job(hosts, run, srun(program, run, *ENDLESS), "head", slurm_environment(slurm)) as launched:
        until_status(hosts, program, run, trains if ranks == "that end" else lambda state: state["behind"])
        slurm("scancel", slurm("squeue", "--noheader", "--format=%i").split()[0])
        launched.wait(90)  # Slurm kills after 30 s (KillWait)
        until_collectors_have_ended(hosts)  # without cgroups, this Slurm knows only its children and theirs
        said, state = status(hosts, program, run, "head"), json.loads(status(hosts, program, run, "head", "--json"))
    if ranks == "that end":
        assert "attempt 1 has ended" in said and state["end"]["exit_code"] == 143, said
    else:
        assert (state["gone"], state["running"], "end" in state) == (RANKS, 0, False), state
        assert "no process of it is left" in said, said
