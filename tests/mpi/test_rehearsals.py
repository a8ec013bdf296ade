"""Faults that a user plans in the configuration ([faults]): each is detected as what it is, and the right rank, node or data is named."""
import json
import os
import subprocess

import pytest
from test_runs import RankRun, data, open_mpi  # noqa: F401

pytestmark = pytest.mark.faults
ALLOWED = {**os.environ, "ATHANOR_ALLOW_FAULTS": "1"}
NODES = "topology.ranks_per_node=1"
# The axes, each over nodes of one rank; the model has 2 layers.
AXES = {
    "data": (4, []),
    "tensor": (2, ["parallelism.tensor_parallel_degree=2"]),
    "pipeline": (2, ["parallelism.pipeline_parallel_degree=2"]),
    "experts": (2, ["parallelism.expert_parallel_degree=2"]),
    "tensor and pipeline": (4, ["parallelism.tensor_parallel_degree=2", "parallelism.pipeline_parallel_degree=2"]),
}


def planned(program, folder, data, **fault):  # noqa: F811
    """A run that suffers a fault."""
    return suffering(RankRun(program, folder, data, "run"), **fault)


def suffering(run, **fault):
    lines = ["\n[[faults.plan]]", *(f"{key} = {json.dumps(value)}" for key, value in fault.items())]
    run.config.write_text(run.config.read_text() + "\n".join(lines) + "\n")
    return run


def on_hosts(folder, program, number):
    """The program on a host with the name `node` and a number that the shell computes from RANK."""
    if subprocess.run(["unshare", "--uts", "true"], capture_output=True).returncode != 0:
        pytest.skip("no rights to give processes other host names")
    script = folder / "on_hosts"
    script.write_text(f"""#!/bin/sh
exec unshare --uts sh -c 'hostname "$0" && exec "$@"' node{number} {program("athanor")} "$@"
""")
    script.chmod(0o755)
    return script


def last_words(run):
    return json.loads((run.folder / "log" / "last-words.json").read_text())


def events(run, name):
    lines = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == name]


def axes(*short):
    """All of them, of which `make test` has some."""
    return [pytest.param(axis, marks=() if axis in short else pytest.mark.slow) for axis in AXES]


@pytest.mark.parametrize("axis", axes("data", "experts", "tensor and pipeline"))
def test_a_rank_that_once_makes_a_nan_is_named_with_its_node(any_launcher, program, data, tmp_path, axis):  # noqa: F811
    ranks, layout = AXES[axis]
    run = planned(program, tmp_path, data, kind="nan", step=3, rank=ranks - 1, phase="forward")
    run.on(any_launcher, ranks, NODES, "checkpoint.interval=1", *layout, expect=75, env=ALLOWED)
    words = last_words(run)
    assert (words["rank"], words["step"], words["exit_code"]) == (ranks - 1, 3, 75), words
    assert words["phase"] == "step", "and not the save that ended meanwhile"
    assert "does the same work" in words["text"] and "Run again without" in words["text"], words


@pytest.mark.parametrize("axis", axes("tensor", "pipeline", "experts"))
def test_data_that_give_a_nan_are_named_and_no_node(any_launcher, program, data, tmp_path, axis):  # noqa: F811
    ranks, layout = AXES[axis]
    run = planned(program, tmp_path, data, kind="nan", step=3, sequence=2, phase="backward", place="model.layers.1")
    run.on(any_launcher, ranks, NODES, *layout, expect=76, env=ALLOWED)
    words = last_words(run)
    assert (words["step"], words["exit_code"]) == (3, 76), words
    if axis not in ("tensor", "tensor and pipeline"):  # there every tensor rank has it: several nodes at once
        assert "sequence 2 of the step's" in words["text"], words
    assert "Run again without" not in words["text"], words


def test_a_node_that_makes_nans_whatever_it_computes_is_named(torchrun, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="nan", step=4, steps=8, host="node1", phase="forward", place="model.layers.0.mlp")
    run.program = on_hosts(tmp_path, program, "$((RANK / 2))")
    run.on(torchrun, 4, expect=75, env=ALLOWED)
    words = last_words(run)
    assert words["host"] == "node1" and "came up on node1 again" in words["text"], words


def test_a_batch_that_is_skipped_costs_no_step_and_is_recorded(any_launcher, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="nan", step=3, sequence=2)
    run.on(any_launcher, 2, NODES, "train.on_non_finite=skip", "train.skip_limit=1", expect=76, env=ALLOWED)
    assert "1 batches were passed over before" in last_words(run)["text"], "the fault comes with each batch of the step"
    run = planned(program, tmp_path, data, kind="nan", step=3, rank=1)
    run.on(any_launcher, 2, "train.on_non_finite=skip", "train.run_dir=" + json.dumps(str(tmp_path / "skips")), env=ALLOWED)  # one node
    run.folder = tmp_path / "skips"
    (skip,) = events(run, "skip")
    assert skip["step"] == 2 and "on rank 1" in skip["text"], skip
    plain = RankRun(program, tmp_path, data, "plain").on(any_launcher, 2)
    skipped, whole = ([line["loss"] for line in each.metrics()] for each in (run, plain))
    assert len(skipped) == len(whole) == 8
    assert skipped[:2] == whole[:2] and skipped[2] != whole[2]
    assert (drawn_by(run, 8), drawn_by(plain, 8)) == (4 * 9, 4 * 8)


def drawn_by(run, step):
    ledger = json.loads((run.checkpoint(step) / "manifest.json").read_text())["state"]["data"]
    return sum(source["drawn"] for source in ledger["sources"].values())


@pytest.mark.parametrize("ranks, layout", [(2, ["checkpoint.resume=never"]), (4, ["parallelism.pipeline_parallel_degree=2", "parallelism.tensor_parallel_degree=2"])])
def test_a_run_rolls_back_to_its_newest_checkpoint_and_continues_behind_the_data(any_launcher, program, data, tmp_path, ranks, layout):  # noqa: F811
    run = planned(program, tmp_path, data, kind="nan", step=6, rank=1)
    run.on(any_launcher, ranks, "train.on_non_finite=roll_back", "checkpoint.interval=4", *layout, env=ALLOWED)  # one node
    (back,) = events(run, "roll_back")
    (resumed,) = events(run, "resume")
    assert (back["step"], resumed["step"], resumed["attempt"]) == (5, 4, 2) and "step-00000004" in resumed["from"]
    assert [line["step"] for line in run.metrics()] == list(range(1, 9))
    assert drawn_by(run, 8) == 4 * (4 + 2 + 4), "the batches of steps 5 and 6 are not used again"
    assert events(run, "end")[-1]["exit_code"] == 0


def test_a_spike_right_behind_a_save_rolls_back_to_what_is_still_being_written(any_launcher, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="scale", step=41, rank=1, phase="reduce")
    run.on(any_launcher, 2, "train.steps=42", "train.on_spike=roll_back", "checkpoint.interval=40", env=ALLOWED)
    (back,) = events(run, "roll_back")
    (resumed,) = events(run, "resume")
    assert (back["step"], resumed["step"]) == (40, 40) and [line["step"] for line in run.metrics()] == list(range(1, 43))


@pytest.mark.parametrize("action", ["log", "skip_step"])
def test_a_gradient_far_above_the_others_is_a_spike(any_launcher, program, data, tmp_path, action):  # noqa: F811
    run = planned(program, tmp_path, data, kind="scale", step=40, rank=1, phase="reduce")
    run.on(any_launcher, 2, "train.steps=42", f"train.on_spike={action}", "checkpoint.interval=35", env=ALLOWED)
    (event,) = events(run, "spike" if action == "log" else "skip")
    assert "the gradient norm is" in event["text"] and event["step"] == (40 if action == "log" else 39), event
    assert events(run, "skip" if action == "log" else "spike") == [] and len(run.metrics()) == 42


@pytest.mark.parametrize("kind, what", [
    ("flip_weight", "the weights have changed in memory"), ("flip_master", "values of the lower bits of the master have changed"),
    ("flip_moment", "values of exp_avg have changed")])
def test_a_bit_that_flips_in_a_step_is_found_before_it_spreads(any_launcher, program, data, tmp_path, kind, what):  # noqa: F811
    run = planned(program, tmp_path, data, kind=kind, step=4, rank=1, phase="backward")
    run.on(any_launcher, 2, "integrity.interval=2", "train.dtype=bfloat16", expect=75, env=ALLOWED)
    words = last_words(run)
    assert (words["rank"], words["step"]) == (1, 4) and what in words["text"] and words["tensor"], words


@pytest.mark.parametrize("ranks, step", [(1, 8), (2, 4), pytest.param(1, 4, marks=pytest.mark.slow), pytest.param(2, 8, marks=pytest.mark.slow)])
def test_weights_without_a_finite_validation_loss_end_the_run_and_their_step_is_not_saved(any_launcher, program, data, tmp_path, ranks, step):  # noqa: F811
    run = planned(program, tmp_path, data, kind="nan_weight", step=step, rank=0, phase="reduce" if ranks > 1 else "update")
    run.on(any_launcher, ranks, "parallelism.sharding=none", "checkpoint.interval=1", "checkpoint.keep=9", "checkpoint.model_interval=1", expect=76, env=ALLOWED)
    words = last_words(run)
    assert (words["step"], words["exit_code"], words["phase"], words["tensor"]) == (step, 76, "validate", "model.norm.weight"), words
    assert f"step {step}: the weights after this step give a validation loss that is not finite (nan)" in words["text"] and words["rank"] == 0, words
    assert run.checkpoint(step - 1).exists() and not run.checkpoint(step).exists()
    assert (run.folder / "models" / f"step-{step - 1:08}").exists() and not (run.folder / "models" / f"step-{step:08}").exists()
    assert run.metrics()[-1]["step"] == step - 1


def test_a_run_rolls_back_from_weights_without_a_finite_validation_loss(any_launcher, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="nan_weight", step=4, rank=0, phase="reduce")
    run.on(any_launcher, 2, "parallelism.sharding=none", "train.on_non_finite=roll_back", "checkpoint.interval=2", env=ALLOWED)
    (back,) = events(run, "roll_back")
    (resumed,) = events(run, "resume")
    assert (back["step"], resumed["step"]) == (3, 2) and "first weight that is not finite is model.norm.weight" in back["text"], back
    assert [line["step"] for line in run.metrics()] == list(range(1, 9))
    assert drawn_by(run, 8) == 4 * (2 + 2 + 6), "the batches of steps 3 and 4 are not used again"


SAVES = {"checkpoint": ["checkpoint.model_interval=0"], "at once": ["checkpoint.model_interval=0", "checkpoint.async=false"],
         "model": ["checkpoint.interval=0"]}


# `make test` has each way to save, and both numbers of ranks.
@pytest.mark.parametrize("ranks, save", [pytest.param(ranks, save, marks=[] if (save == "checkpoint") == (ranks == 2) else pytest.mark.slow)
                                         for ranks in (1, 2) for save in SAVES])
def test_what_is_not_finite_after_the_last_step_is_not_saved_and_is_in_the_exit_code(any_launcher, program, data, tmp_path, ranks, save):  # noqa: F811
    settings, kind = SAVES[save], "model" if save == "model" else "checkpoint"
    run = RankRun(program, tmp_path, data, "run")
    for rank in range(ranks):  # whichever of them saves the element
        suffering(run, kind="nan_weight", step=8, rank=rank, phase="reduce" if ranks > 1 else "update")
    run.on(any_launcher, ranks, "parallelism.sharding=none", "train.validation_interval=0", *settings, expect=76, env=ALLOWED)
    words = last_words(run)
    assert (words["step"], words["rank"], words["tensor"].removeprefix("master/")) == (8, None, "model.norm.weight"), words
    assert "element [16] of" in words["text"] and "is nan" in words["text"], words
    (failed,) = events(run, "save_failed")
    assert (failed["step"], failed["kind"]) == (8, kind) and events(run, "end")[-1]["exit_code"] == 76
    assert not run.checkpoint(8).exists() and not (run.folder / "models" / "step-00000008").exists()
    run.on(any_launcher, ranks, "parallelism.sharding=none", "train.validation_interval=0", *settings, env=ALLOWED)  # it acts once
    assert run.metrics()[-1]["step"] == 8


def test_a_checkpoint_that_is_not_finite_is_not_written_and_the_next_step_decides(any_launcher, program, data, tmp_path):  # noqa: F811
    run = suffering(planned(program, tmp_path, data, kind="nan_weight", step=4, rank=0, phase="reduce"), kind="nan_weight", step=4, rank=1, phase="reduce")
    run.on(any_launcher, 2, "parallelism.sharding=none", "train.validation_interval=0", "checkpoint.interval=2", "checkpoint.keep=1",
           "checkpoint.model_interval=0", expect=76, env=ALLOWED)
    assert last_words(run)["step"] == 5 and "the loss is nan" in last_words(run)["text"], last_words(run)
    assert run.checkpoint(2).exists() and not run.checkpoint(4).exists()


def test_a_moment_of_the_weight_that_a_fault_names_flips(any_launcher, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="flip_moment", step=4, rank=1, phase="backward", place="model.layers.1.mlp.experts.up_proj.weight")
    run.on(any_launcher, 2, "integrity.interval=2", "parallelism.sharding=none", expect=75, env=ALLOWED)
    words = last_words(run)
    assert words["rank"] == 1 and "values of exp_avg" in words["text"], words
    assert "model.layers.1.mlp.experts." in words["text"], "a block of hashes has several parameters"


# Without MPI the others find out that a process has gone, and one of them reports it.
def test_a_rank_that_was_killed_is_missing_in_the_last_words_of_another(torchrun, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="kill", step=3, rank=1, phase="backward")
    torchrun.run(2, run.program, "train", *run.words([]), env=ALLOWED)
    words = last_words(run)
    assert (words["exit_code"], words["rank"]) == (78, 0) and words["missing"] == [{"rank": 1, "host": os.uname().nodename}], words


# A small parameter shares its block, and so its hash, with others, none of which may be accused alone.
def test_a_bit_that_flips_in_a_small_parameter_is_not_said_to_be_in_its_neighbour(any_launcher, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="flip_weight", step=4, rank=1, place="model.layers.1.self_attn.q_norm.weight")
    run.on(any_launcher, 2, "integrity.interval=2", expect=75, env=ALLOWED)
    assert last_words(run)["tensor"] == ("one of 9 parameters, from model.layers.1.input_layernorm.weight (elements 0 to 31 of the rank's "
                                         "part) to model.layers.1.mlp.gate.weight (elements 0 to 255 of the rank's part)"), last_words(run)


def test_ranks_whose_weights_differ_are_found_though_the_bit_flipped_in_a_step_that_was_not_checked(any_launcher, program, data,  # noqa: F811
                                                                                                  tmp_path):
    run = planned(program, tmp_path, data, kind="flip_weight", step=3, rank=2, phase="backward", place="model.layers.1.input_layernorm.weight")
    run.on(any_launcher, 4, "integrity.interval=4", "parallelism.sharding=none", expect=75, env=ALLOWED)
    words = last_words(run)
    assert words["step"] == 4 and "silent corruption" in words["text"], words


# On hosts of their own the ranks do not share cores, as far as they know.
def test_a_rank_that_computes_slowly_is_named_with_its_host(torchrun, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="slow", step=1, steps=30, rank=2, phase="forward", place="model.norm", seconds=0.05)
    run.program = on_hosts(tmp_path, program, "$RANK")
    run.on(torchrun, 3, "train.global_batch_size=3", "train.steps=24", "checkpoint.interval=0", "checkpoint.model_interval=0", env=ALLOWED)
    (line,) = [line for line in run.said.splitlines() if "slower than the median" in line]
    assert "steps 1 to 20" in line and "them: rank 2 (node2)" in line, line


def test_ranks_that_share_cores_are_not_named_as_slow(any_launcher, program, data, tmp_path):  # noqa: F811
    threads = len(os.sched_getaffinity(0)) // 3 + 1  # more than there are cores for three ranks
    run = planned(program, tmp_path, data, kind="slow", step=1, steps=30, rank=2, phase="forward", place="model.norm", seconds=0.05)
    run.on(any_launcher, 3, "train.global_batch_size=3", "train.steps=24", f"train.num_threads={threads}", "checkpoint.interval=0", "checkpoint.model_interval=0", env=ALLOWED)
    assert "slower than the median" not in run.said, run.said


# Each launch takes a millisecond in the time of the devices, so that no clock decides: a step takes some seconds in that time.
def test_a_device_that_computes_slowly_is_named_with_its_host(open_mpi, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="slow", step=1, steps=30, rank=2, phase="forward", place="model.norm", seconds=2)
    run.program = program("athanor_on_guarded")
    run.on(open_mpi, 3, "train.device=auto", "train.global_batch_size=3", "integrity.probe=false", "train.steps=24", "checkpoint.interval=0", "checkpoint.model_interval=0",
           env={**ALLOWED, "ATHANOR_GUARDED_LAUNCH_MS": "1"})
    assert "device: one for each rank" in run.said, run.said
    (line,) = [line for line in run.said.splitlines() if "slower than the median" in line]
    assert "steps 1 to 20" in line and "them: rank 2 (" in line and ", rank " not in line.split("them: ")[1], line
    assert all(step["device_waits"] == 1 for step in run.metrics()[:1]), run.metrics()


@pytest.mark.parametrize("kind, code", [("exception", 1), ("kill", None), pytest.param("segv", None, marks=pytest.mark.slow)])
def test_a_fault_acts_once_in_a_run_folder(any_launcher, program, data, tmp_path, kind, code):  # noqa: F811
    run = planned(program, tmp_path, data, kind=kind, step=3, rank=1, phase="backward")
    ended, out, err, _ = any_launcher.run(2, run.program, "train", *run.words([]), env=ALLOWED)
    assert ended != 0 and (code is None or ended == code), out + err
    if kind == "exception":
        assert last_words(run)["rank"] == 1 and "a rehearsed exception" in last_words(run)["text"]
    run.on(any_launcher, 2, env=ALLOWED)
    assert run.metrics()[-1]["step"] == 8


# A run that ends with 0 has not survived what it never suffered.
def test_a_fault_that_found_nothing_to_act_on_is_told_when_the_run_is_complete(any_launcher, program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "run")
    for fault, told in [
        ({"rank": 1, "place": "model.layers.9.mlp"}, "the rank saw no tensor with the name model.layers.9.mlp there"),
        ({"rank": 1, "microbatch": 7}, "in microbatch 7"),
        ({"sequence": 3, "place": "mlp"}, "nan in forward of step 3 on the rank that computes sequence 3 did not act"),
        ({"rank": 0, "kind": "exception", "phase": "validate"}, "the step had no such phase"),
        ({"rank": 1, "kind": "torn_checkpoint", "step": 5}, "the step had no full checkpoint"),
        ({"host": "nowhere"}, "no rank of this attempt is on that host"),
        ({"rank": 1, "kind": "slow", "seconds": 0.001}, None),
        ({"rank": 0, "kind": "torn_checkpoint", "step": 8}, None),
    ]:
        suffering(run, **{"kind": "nan", "step": 3, **fault})
        run.untold = getattr(run, "untold", []) + [told]
    run.on(any_launcher, 2, env=ALLOWED)
    lines = [line for line in run.said.splitlines() if "did not act" in line or "does not act" in line]
    for told in filter(None, run.untold):
        assert sum(told in line for line in lines) == 1, (told, lines)
    assert len(lines) == len(list(filter(None, run.untold))), lines


PLANS = [
    ({"rank": 0}, {}, "set ATHANOR_ALLOW_FAULTS=1"),
    ({"rank": 3}, ALLOWED, "the job has 1 rank(s)"),
    ({}, ALLOWED, "set one of rank, host and sequence"),
    ({"sequence": 1, "phase": "reduce"}, ALLOWED, "belongs to no sequence"),
    ({"rank": 0, "kind": "flip_weight", "place": "model.layers.7.mlp"}, ALLOWED, "the model has no weight model.layers.7.mlp"),
]
MORE_PLANS = [
    ({"rank": 0, "host": "a"}, ALLOWED, "set one of rank, host and sequence"),
    ({"sequence": 4}, ALLOWED, "a step has 4 sequences"),
    ({"rank": 0, "step": 9}, ALLOWED, "the run has 8 steps"),
    ({"rank": 0, "kind": "flip_moment", "place": "model.layers.7.mlp"}, ALLOWED, "the model has no weight model.layers.7.mlp"),
]


@pytest.mark.parametrize("plans", [PLANS, pytest.param(MORE_PLANS, marks=pytest.mark.slow)], ids=["plans", "more"])
def test_a_plan_is_refused_unless_the_environment_allows_it(program, data, tmp_path, plans):  # noqa: F811
    for fault, environment, reason in plans:
        run = planned(program, tmp_path, data, **{"kind": "nan", **fault})
        done = subprocess.run([run.program, "train", run.config], capture_output=True, text=True, env={**os.environ, **environment})
        assert done.returncode == 2 and reason in done.stderr and not run.folder.exists(), done.stderr
