"""Jobs without MPI: ranks that die, come late, or meet at torchrun's store; runs with the bits of those under MPI."""
import hashlib
import os
import pathlib
import re
import subprocess

import pytest

from test_failures import SECONDS, last_line, without_clock
from test_runs import RankRun, data, open_mpi  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "7", "MASTER_ADDR": "localhost", "MASTER_PORT": "29511"}


@pytest.mark.parametrize("dead", [0, 2])
def test_a_rank_that_is_killed_is_named_once_and_all_others_end(torchrun, program, dead):
    code, out, err, seconds = torchrun.run(4, program("comm_ranks"), "die", dead)
    host, speaker = re.escape(os.uname().nodename), 1 if dead == 0 else 0
    assert re.fullmatch(rf"rank {speaker} \({host}\): step 7: .*rank {dead} \({host}\) has ended without a farewell: .*",
                        without_clock(last_line(err))), out + err
    assert err.count("without a farewell") == 1, err
    assert torchrun.codes == [137 if rank == dead else 78 for rank in range(4)] and not torchrun.ended
    assert code == 137 and seconds < SECONDS


def test_ranks_that_wait_for_something_else_than_messages_end_as_well(torchrun, program):
    code, out, err, seconds = torchrun.run(3, program("comm_ranks"), "elsewhere", 1)
    assert re.fullmatch(r"rank 0 \(\S+\): the network failed: rank 1 \(\S+\) has ended without a farewell: .*", last_line(err)), out + err
    assert torchrun.codes == [78, 137, 78] and not torchrun.ended
    assert seconds < SECONDS


@pytest.mark.parametrize("late", [0, 2])
def test_ranks_wait_for_one_that_starts_late(torchrun, program, late):
    code, out, err, _ = torchrun.run(3, program("comm_ranks"), "throw", 7, delays={late: 1.5})  # there is no rank 7: none throws
    assert code == 0 and not err, out + err


def test_under_an_agent_the_ranks_meet_at_its_store(torchrun_with_agent, program):
    code, out, err, _ = torchrun_with_agent.run(3, program("comm_ranks"), "collectives")
    assert code == 0 and "right on 3 ranks" in out and not err, out + err


def test_under_an_agent_a_wrong_configuration_is_told_once(torchrun_with_agent, program, tmp_path):
    config = tmp_path / "wrong.toml"
    config.write_text("[model]\nhiden_size = 3\n")
    code, out, err, seconds = torchrun_with_agent.run(4, program("athanor"), "train", config)
    assert err.count("hiden_size") == 1 and code == 2, out + err
    assert seconds < SECONDS


def test_what_rank_0_alone_finds_before_the_meeting_ends_those_that_wait_for_it(torchrun, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    script = tmp_path / "first_is_wrong"
    script.write_text(f'#!/bin/sh\n[ "$RANK" = 0 ] && exec {run.program} train {tmp_path}/not-there.toml\nexec {run.program} "$@"\n')
    script.chmod(0o755)
    code, out, err, seconds = torchrun.run(3, script, "train", *run.words([]))
    assert torchrun.codes == [2, 2, 2] and "not-there.toml" in err and len(err.strip().splitlines()) == 1, out + err
    assert seconds < SECONDS


def test_two_launchers_that_contradict_each_other_are_told_once(mpi, program):
    code, out, err, _ = mpi.run(3, program("athanor"), "train", ROOT / "recipes/olmoe-tiny.toml", env=TORCHRUN)
    assert code == 2, out + err
    assert err.count("two launchers contradict each other") == 1 and "RANK=0 and WORLD_SIZE=7" in err and mpi.name in err, err


def test_without_a_place_to_meet_a_job_is_refused_with_what_is_missing(program):
    environment = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    done = subprocess.run([program("athanor"), "train", "not-there.toml"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "with MASTER_PORT set, too" in done.stderr, done.stderr


def test_a_host_that_is_unknown_is_refused_with_the_variable(torchrun, program):
    code, out, err, seconds = torchrun.run(2, program("comm_ranks"), "collectives", env={"MASTER_ADDR": "no-such-host.invalid"})
    assert torchrun.codes == [2, 2] and not torchrun.ended, out + err
    assert all("MASTER_ADDR (no-such-host.invalid) is not a host that this machine" in line for line in err.strip().splitlines()), err
    assert seconds < SECONDS


def started_as(tmp_path, program, *cases):
    """A script that starts `program`, for some ranks in another way: each case is "RANK) COMMAND"."""
    script = tmp_path / "started_as"
    script.write_text("#!/bin/sh\ncase $RANK in\n" + "".join(f"{case} ;;\n" for case in cases) + f'esac\nexec {program} "$@"\n')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("ranks, case, said", [
    (2, "1) WORLD_SIZE=3", "other sizes of the job: rank . .* has WORLD_SIZE=., and rank . .* has WORLD_SIZE=.; start all"),
    (3, "2) RANK=1", "two processes with RANK=1 have come to the meeting at .*, both on ")], ids=["WORLD_SIZE", "RANK"])
def test_numbers_that_contradict_each_other_are_refused_on_all_ranks(torchrun, program, tmp_path, ranks, case, said):
    code, out, err, seconds = torchrun.run(ranks, started_as(tmp_path, program("comm_ranks"), case), "collectives")
    assert torchrun.codes == [2] * ranks and not torchrun.ended, out + err
    assert re.search(said, err), err
    assert seconds < SECONDS


@pytest.mark.parametrize("words, change, said", [
    (["verify", ROOT / "recipes/olmoe-tiny.toml"], "--set optimizer.lr=0.5", "optimizer.lr was "),
    (["verify", ROOT / "recipes/olmoe-tiny.toml"], "--steps 5", '--steps was "'),
    (["bench", "comm", "--most", "1024"], "--rounds 3", '--rounds was "')], ids=["verify --set", "verify --steps", "bench comm"])
def test_ranks_of_verify_and_bench_comm_with_other_settings_are_refused(torchrun, program, tmp_path, words, change, said):
    other = f'1) exec {program("athanor")} "$@" {change}'
    code, out, err, seconds = torchrun.run(2, started_as(tmp_path, program("athanor"), other), *words)
    assert torchrun.codes == [2, 2] and not torchrun.ended, out + err
    assert re.search(rf"rank 1 \(\S+\) has other settings than rank 0: {re.escape(said)}", err), err
    assert seconds < SECONDS


def test_when_rank_0_is_killed_before_all_have_met_the_others_name_it_and_end(torchrun, program, tmp_path):
    killed, absent = f"0) exec timeout -s KILL 4 {program('comm_ranks')} collectives", "2) exit 0"
    code, out, err, seconds = torchrun.run(3, started_as(tmp_path, program("comm_ranks"), killed, absent), "collectives")
    assert torchrun.codes == [137, 78, 0] and not torchrun.ended, out + err
    assert re.search(r" rank 0 has ended or is out of reach: the store at \S+, which it serves", last_line(err)), err
    assert seconds < SECONDS


def weights(run):
    folder = run.folder / "models" / "step-00000008"
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.safetensors")}


def test_a_run_without_mpi_has_the_bits_of_one_with_mpi(torchrun, open_mpi, program, data, tmp_path):  # noqa: F811
    layout = ["parallelism.sharding=optimizer", "parallelism.expert_parallel_degree=2", "parallelism.pipeline_parallel_degree=2"]
    one = RankRun(program, tmp_path, data, "mpi").on(open_mpi, 4, *layout)
    many = RankRun(program, tmp_path, data, "torchrun").on(torchrun, 4, *layout)
    for a, b in zip(one.metrics(), many.metrics(), strict=True):
        assert (a["loss"], a["grad_norm"]) == (b["loss"], b["grad_norm"])
    assert weights(one) and weights(one) == weights(many)


def test_verify_runs_without_mpi(torchrun, program):
    code, out, err, _ = torchrun.run(2, program("athanor"), "verify", ROOT / "recipes/olmoe-tiny.toml", "--dtype", "float32", "--set",
                                     "parallelism.expert_parallel_degree=2", timeout=240)
    assert code == 0, out + err
