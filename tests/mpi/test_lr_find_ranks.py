"""`athanor lr-find` on several ranks: each takes part, the first one prints, and a layout gives the same bits again."""
import functools
import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))
from runs import make_data  # noqa: E402
from test_runs import Athanor, RankRun  # noqa: E402

STEPS = 20
LAYOUTS = [
    pytest.param(2, (), marks=pytest.mark.slow),
    (4, ("parallelism.pipeline_parallel_degree=2", "parallelism.tensor_parallel_degree=2")),
    (2, ("parallelism.expert_parallel_degree=2",)),
    pytest.param(4, ("parallelism.expert_parallel_degree=2",), marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def run(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("find")
    return RankRun(program, folder, make_data(Athanor(program("athanor")), folder), "run")


def find(run, launcher, ranks, layout, *options):
    settings = [part for each in layout for part in ("--set", each)]
    code, out, err, _ = launcher.run(ranks, run.program, "lr-find", run.config, "--steps", STEPS, "--from", 1e-4, "--json", *settings, *options)
    return code, out, err


@pytest.fixture(scope="module")
def one_rank(run):
    done = Athanor(run.program).run("lr-find", run.config, "--steps", STEPS, "--from", 1e-4, "--json", env=dict(os.environ, OMP_NUM_THREADS="1"))
    return json.loads(done.stdout)["optimizers"][0]


@pytest.fixture(scope="module")
def found_before(run, any_launcher):
    """Returns a function that gives what a layout has printed under the first launcher, where each layout runs once."""
    return functools.cache(lambda ranks, layout: find(run, any_launcher, ranks, layout))


@pytest.mark.parametrize("ranks, layout", LAYOUTS)
def test_a_layout_gives_its_bits_again_under_every_launcher_and_the_first_loss_of_one_rank(run, launcher, found_before, one_rank, ranks, layout):
    first, second = found_before(ranks, layout), find(run, launcher, ranks, layout)
    assert first[0] == 0 and second[0] == 0 and first[1] == second[1], first[2] + second[2]
    assert len(first[1].splitlines()) == 1  # one rank prints
    found = json.loads(first[1])["optimizers"][0]
    # Before any update. A loss in fp32 follows from sums of at most 32 products in 2 layers and of the 320 logits: other cuts change each by
    # less than 2^-24 of 400 terms.
    assert found["first_loss"] == pytest.approx(one_rank["first_loss"], rel=400 * 2**-24)
    assert not run.folder.exists()


def test_a_range_at_fault_ends_the_job_with_one_line_and_2(run, launcher):
    code, out, err = find(run, launcher, 2, [], "--to", 1e3, "--from", 1e2, "--set", "optimizer.max_grad_norm=0")
    assert code == 2 and err.count("--from") == 1, err
