"""Faults that a user plans in runs of four ranks with a device each, which the host plays: they are judged as on CPUs.

Cells that `make test` leaves out are marked slow.
"""
import pytest
from test_failures import SECONDS
from test_fault_cells import BATCH, timeout_for
from test_guarded_devices import ON_DEVICES, GuardedRun
from test_rehearsals import NODES, drawn_by, events, last_words, suffering
from test_runs import data, open_mpi  # noqa: F401

slow = pytest.mark.slow
RANKS = 4
LAYOUTS = {
    "data": [],
    "tensor": ["parallelism.tensor_parallel_degree=4"],
    "experts": ["parallelism.expert_parallel_degree=4", "moe.dispatch=all_to_all"],
    "pipeline": ["parallelism.pipeline_parallel_degree=2"],
}


class FaultyRun(GuardedRun):
    """A run that suffers a fault."""

    def __init__(self, program, folder, data, name="run", **fault):  # noqa: F811
        super().__init__(program, folder, data, name)
        suffering(self, **fault)

    def on(self, mpi, *overrides, expect=0, order="earliest"):
        return super().on(mpi, RANKS, ON_DEVICES, BATCH, *overrides, expect=expect,
                          env={"ATHANOR_ALLOW_FAULTS": "1", "ATHANOR_GUARDED_ORDER": order})


def cells(*axes, fast):
    """The product of the axes; of it those in `fast` are not slow."""
    rows = [()]
    for axis in axes:
        rows = [(*row, value) for row in rows for value in axis]
    return [pytest.param(*row, id="-".join(row), marks=() if row in fast else slow) for row in rows]


@pytest.mark.parametrize("layout, phase", cells(LAYOUTS, ["forward", "backward", "reduce"], fast={("pipeline", "backward")}))
def test_a_rank_that_once_makes_a_nan_is_named_with_its_node(open_mpi, program, data, tmp_path, layout, phase):  # noqa: F811
    rank = {"forward": 3, "backward": 0, "reduce": 2}[phase]
    run = FaultyRun(program, tmp_path, data, kind="nan", step=3, rank=rank, phase=phase)
    run.on(open_mpi, NODES, *LAYOUTS[layout], expect=75, order="5")
    words = last_words(run)
    assert (words["rank"], words["step"], words["exit_code"]) == (rank, 3, 75), words
    assert "does the same work" in words["text"] and "Run again without" in words["text"], words
    assert f"guarded:{rank})" in words["text"], words


@pytest.mark.parametrize("layout, phase", cells(LAYOUTS, ["forward", "backward"], fast={("experts", "forward")}))
def test_data_that_give_a_nan_are_named_with_the_part_of_the_model_and_no_node(open_mpi, program, data, tmp_path, layout, phase):  # noqa: F811
    run = FaultyRun(program, tmp_path, data, kind="nan", step=3, sequence=2, phase=phase, place="model.layers.1.mlp")
    run.on(open_mpi, NODES, *LAYOUTS[layout], expect=76)
    words = last_words(run)
    assert (words["step"], words["exit_code"]) == (3, 76) and "Run again without" not in words["text"], words
    assert f"{phase} of model.layers.1.mlp" in words["text"], words
    if layout != "tensor":  # there every rank has it: several nodes at once
        assert "sequence 2 of the step's" in words["text"], words


@pytest.mark.parametrize("layout, kind", cells(LAYOUTS, ["flip_weight", "flip_moment"], fast={("tensor", "flip_moment")}))
def test_a_bit_that_flips_is_found_on_its_rank(open_mpi, program, data, tmp_path, layout, kind):  # noqa: F811
    run = FaultyRun(program, tmp_path, data, kind=kind, step=4, rank=2, phase="backward")
    run.on(open_mpi, "integrity.interval=2", *LAYOUTS[layout], expect=75)
    words = last_words(run)
    assert (words["rank"], words["step"], words["cause"]) == (2, 4, "numbers of a node") and words["tensor"], words
    assert "(elements " in words["text"], words


@slow
@pytest.mark.parametrize("layout", ["data", "pipeline"])
@pytest.mark.parametrize("kind", ["stop", "hang", "exception"])
def test_a_process_that_fails_is_named_and_the_run_continues(open_mpi, program, data, tmp_path, kind, layout):  # noqa: F811
    run = FaultyRun(program, tmp_path, data, kind=kind, step=4, rank=2, phase="backward")
    settings = [timeout_for(kind), "checkpoint.interval=2", BATCH, ON_DEVICES, *LAYOUTS[layout]]
    code, out, err, seconds = open_mpi.run(RANKS, run.program, "train", *run.words(settings), env={"ATHANOR_ALLOW_FAULTS": "1"})
    said, words = out + err, last_words(run)
    if kind == "exception":
        assert code == 1 and words["rank"] == 2 and "a rehearsed exception" in words["text"], said
    else:
        assert code == 78 and "rank 2 (" in words["text"].partition("missing:")[2], said
    assert seconds < SECONDS
    assert run.on(open_mpi, timeout_for(None), *settings[1:]).metrics()[-1]["step"] == 8, "it acts once"


@slow
def test_a_batch_that_is_passed_over_and_a_run_that_rolls_back_have_the_same_bits(open_mpi, program, data, tmp_path):  # noqa: F811
    """The fault is in the step after a checkpoint, so that both continue from the same weights with the same data."""
    runs = {}
    for how, order in (("skip", "earliest"), ("roll_back", "7")):
        run = runs[how] = FaultyRun(program, tmp_path, data, how, kind="nan", step=5, rank=1)
        run.on(open_mpi, f"train.on_non_finite={how}", "checkpoint.interval=4", *LAYOUTS["experts"], order=order)
        assert len(events(run, how)) == 1 and drawn_by(run, 8) == 8 * 9, run.said
    assert runs["skip"].bits() == runs["roll_back"].bits()


@slow
def test_cuda_graphs_that_have_no_effect_hide_nothing(open_mpi, program, data, tmp_path):  # noqa: F811
    run = FaultyRun(program, tmp_path, data, kind="nan", step=3, rank=1)
    run.on(open_mpi, NODES, "train.cuda_graphs=true", expect=75)
    assert "train.cuda_graphs has no effect" in run.said and last_words(run)["rank"] == 1, run.said
