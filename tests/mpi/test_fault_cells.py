"""Planned faults in every phase of a step and with every axis: each is detected as what it is, and none is named wrongly.

Cells that `make test` leaves out are marked slow. The last tests draw a fault that no row lists.
"""
import json
import os
import random

import pytest
from test_failures import SECONDS
from test_rehearsals import ALLOWED, NODES, events, last_words, planned
from test_runs import RankRun, data, open_mpi  # noqa: F401

pytestmark = pytest.mark.faults
slow = pytest.mark.slow


def timeout_for(kind):
    """A fault that others find by waiting is waited for briefly, but longer than a busy machine stands still."""
    return f"parallelism.collective_timeout_s={10 if kind in ('stop', 'hang') else 60}"


PHASES = ["start", "data", "forward", "backward", "reduce", "update", "gather", "save", "validate"]
PHASE_OF_WORDS = {"start": "start", "data": "data", "save": "save", "validate": "validate"}  # else "step"
FAST = {("exception", "start"), ("kill", "update"), ("stop", "save"), ("hang", "forward")}
# Layouts on 4 and on 8 ranks; the model has 2 layers and 8 experts.
TENSOR, PIPELINE, EXPERTS = (f"parallelism.{axis}_parallel_degree=2" for axis in ("tensor", "pipeline", "expert"))
LAYOUTS = {
    "data 4": (4, []),
    "tensor 4": (4, ["parallelism.tensor_parallel_degree=4"]),
    "pipeline 4": (4, [PIPELINE]),
    "experts 4": (4, ["parallelism.expert_parallel_degree=4", "moe.dispatch=all_to_all"]),
    "sequence 4": (4, [TENSOR, "parallelism.sequence_parallel=true"]),
    "data 8": (8, []),
    "tensor and data 8": (8, ["parallelism.tensor_parallel_degree=4"]),
    "pipeline and experts 8": (8, [PIPELINE, "parallelism.expert_parallel_degree=4"]),
    "all 8": (8, [TENSOR, PIPELINE, EXPERTS]),
}
BATCH = "train.global_batch_size=8"


def cells(kinds):
    return [pytest.param(kind, phase, id=f"{kind}-{phase}", marks=() if (kind, phase) in FAST else slow) for kind in kinds for phase in PHASES]


@pytest.mark.parametrize("kind, phase", cells(["exception", "kill", "stop", "hang"]))
def test_a_process_that_fails_in_a_phase_is_the_one_that_is_named(open_mpi, program, data, tmp_path, kind, phase):  # noqa: F811
    run = planned(program, tmp_path, data, kind=kind, step=4, rank=2, phase=phase)
    code, out, err, seconds = open_mpi.run(4, run.program, "train", *run.words([timeout_for(kind), "checkpoint.interval=2", BATCH]), env=ALLOWED)
    said = out + err
    assert (run.folder / "log" / "faults" / "0").exists(), said
    words = last_words(run) if (run.folder / "log" / "last-words.json").exists() else None
    if kind == "exception":
        assert code == 1 and "a rehearsed exception" in words["text"], said
        assert (words["rank"], words["phase"]) == (2, PHASE_OF_WORDS.get(phase, "step")), words
        assert words["step"] == (4 if phase != "start" else words["step"]), words
    elif kind == "kill":
        assert code == 137 and words is None, said
    else:
        assert code == 78 and "missing: rank 2 (" in words["text"], said
        assert [missing["rank"] for missing in words["missing"]] == [2] and words["missing"][0]["host"], words
        assert not any(f"rank {other} (" in words["text"].partition("missing:")[2] for other in (0, 1, 3)), words
    assert seconds < SECONDS
    again = RankRun.on(run, open_mpi, 4, timeout_for(None), "checkpoint.interval=2", BATCH, env=ALLOWED)  # it acts once
    assert again.metrics()[-1]["step"] == 8


@pytest.mark.parametrize("layout", [pytest.param(name, marks=() if name == "tensor 4" else slow) for name in LAYOUTS])
@pytest.mark.parametrize("phase, place", [("forward", "model.layers.1.mlp"), pytest.param("backward", "model.layers.0", marks=slow),
                                          pytest.param("reduce", "", marks=slow)])
def test_a_rank_that_once_makes_a_nan_is_named_in_every_layout(any_launcher, program, data, tmp_path, layout, phase, place):  # noqa: F811
    ranks, settings = LAYOUTS[layout]
    rank = {"forward": ranks - 1, "backward": 0, "reduce": ranks // 2}[phase]  # the first stage has layer 0, the last one layer 1
    run = planned(program, tmp_path, data, kind="nan", step=3, rank=rank, phase=phase, place=place)
    run.on(any_launcher, ranks, NODES, BATCH, *settings, expect=75, env=ALLOWED)
    words = last_words(run)
    assert (words["rank"], words["step"], words["exit_code"]) == (rank, 3, 75), words


@pytest.mark.parametrize("layout", [pytest.param(name, marks=() if name == "pipeline 4" else slow) for name in LAYOUTS])
@pytest.mark.parametrize("kind", ["flip_weight", pytest.param("flip_moment", marks=slow)])
def test_a_bit_that_flips_is_found_on_its_rank_in_every_layout(any_launcher, program, data, tmp_path, layout, kind):  # noqa: F811
    ranks, settings = LAYOUTS[layout]
    run = planned(program, tmp_path, data, kind=kind, step=4, rank=ranks - 2, phase="backward")
    run.on(any_launcher, ranks, "integrity.interval=1", BATCH, *settings, expect=75, env=ALLOWED)
    words = last_words(run)
    assert (words["rank"], words["step"], words["cause"]) == (ranks - 2, 4, "numbers of a node") and words["tensor"], words


# ---- disks

# A save in the background may still be under way when the next one begins, and then meets its fault.
AT_ONCE = ["checkpoint.interval=2", "checkpoint.keep=9", "checkpoint.model_interval=0", "checkpoint.async=false"]


def test_a_write_that_fails_costs_one_checkpoint(any_launcher, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="write_fails", step=4, rank=1)
    run.on(any_launcher, 2, *AT_ONCE, env=ALLOWED)
    (failed,) = events(run, "save_failed")
    assert failed["step"] == 4 and failed["kind"] == "checkpoint", failed
    assert [step for step in (2, 4, 6, 8) if run.checkpoint(step).exists()] == [2, 6, 8]


def test_a_disk_that_is_full_until_the_end_costs_the_last_checkpoint_and_is_in_the_exit_code(any_launcher, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="full_disk", step=7, steps=2, rank=0)
    run.on(any_launcher, 2, *AT_ONCE, expect=11, env=ALLOWED)
    assert [step for step in (2, 4, 6, 8) if run.checkpoint(step).exists()] == [2, 4, 6]
    run.on(any_launcher, 2, *AT_ONCE, env=ALLOWED)
    assert run.checkpoint(8).exists() and run.metrics()[-1]["step"] == 8


def test_a_checkpoint_that_was_cut_off_is_not_trusted(any_launcher, program, data, tmp_path):  # noqa: F811
    run = planned(program, tmp_path, data, kind="torn_checkpoint", step=6, rank=0)
    run.on(any_launcher, 2, "checkpoint.interval=2", "train.steps=6", "checkpoint.model_interval=0", "optimizer.schedule=constant", env=ALLOWED)
    run.on(any_launcher, 2, "checkpoint.interval=2", "checkpoint.model_interval=0", "optimizer.schedule=constant", env=ALLOWED)
    (resumed,) = events(run, "resume")
    assert resumed["step"] == 4 and "step-00000006" in run.said, run.said
    assert [line["step"] for line in run.metrics()] == list(range(1, 9))


# ---- what no row lists


def drawn_fault(draw):
    """Returns a fault with its layout, and what must be found: exit code, rank or None, words."""
    layout = draw.choice(list(LAYOUTS))
    ranks, settings = LAYOUTS[layout]
    step = draw.randint(2, 8)
    kind = draw.choice(["nan", "nan", "nan of data", "flip_weight", "flip_moment", "exception"])
    phase = draw.choice(["forward", "backward"])
    rank = draw.randrange(ranks)
    fault = {"kind": kind, "step": step, "rank": rank, "phase": phase}
    if kind == "nan of data":
        return layout, {"kind": "nan", "step": step, "sequence": draw.randrange(8), "phase": phase}, 76, None
    if kind == "nan":
        fault["microbatch"] = draw.choice([-1, 0])
    return layout, fault, {"nan": 75, "exception": 1}.get(kind, 75), rank


@pytest.mark.parametrize("index", [0, *(pytest.param(index, marks=slow) for index in range(1, 12))])
def test_a_fault_that_is_drawn_is_found_where_it_is(any_launcher, program, data, tmp_path, index):  # noqa: F811
    seed = os.environ.get("ATHANOR_FAULT_SEED") or random.SystemRandom().randrange(2**32)
    draw = random.Random(f"{seed} {index}")
    layout, fault, code, rank = drawn_fault(draw)
    ranks, settings = LAYOUTS[layout]
    print(f"ATHANOR_FAULT_SEED={seed} index {index}: {layout}, {json.dumps(fault)}")
    run = planned(program, tmp_path, data, **fault)
    run.on(any_launcher, ranks, NODES, BATCH, "integrity.interval=1", *settings, expect=code, env=ALLOWED)
    words = last_words(run)
    assert (words["step"], words["exit_code"]) == (fault["step"], code), words
    if rank is not None:
        assert words["rank"] == rank, words
    else:
        assert "Run again without" not in words["text"], words
