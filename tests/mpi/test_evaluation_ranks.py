"""Evaluation during training on several ranks: the bits of one rank on data ranks, within float32's bound on the others, and rules stop all."""
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))
from gate_rows import write_rows  # noqa: E402
from runs import make_data  # noqa: E402
from test_runs import Athanor, RankRun  # noqa: E402

LAYOUTS = {  # ranks, overrides
    "tensor": (2, ["parallelism.tensor_parallel_degree=2"]),
    "sequence": (2, ["parallelism.tensor_parallel_degree=2", "parallelism.sequence_parallel=true"]),
    "pipeline and experts": (4, ["parallelism.pipeline_parallel_degree=2", "parallelism.expert_parallel_degree=2"]),
}


@pytest.fixture(scope="module")
def data(program, tmp_path_factory):
    return make_data(Athanor(program("athanor")), tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    rows = write_rows(tmp_path_factory.mktemp("gate"))
    # No step before the evaluation, so that only the evaluation depends on the layout.
    return [*rows, "eval.interval=1", "train.steps=1", "optimizer.warmup_steps=1", "optimizer.lr=1e-30", "optimizer.min_lr=1e-30",
            "optimizer.weight_decay=0", "train.validation_interval=0", "model.initializer_range=0.15", "checkpoint.model_interval=0"]


@pytest.fixture(scope="module")
def one(program, data, gate, tmp_path_factory):
    run = RankRun(program, tmp_path_factory.mktemp("one"), data, "one").alone(*gate)
    return run.metrics()[0]["evaluation"]


def test_data_ranks_give_the_bits_of_one_rank(program, any_launcher, data, gate, one, tmp_path):
    run = RankRun(program, tmp_path, data, "two").on(any_launcher, 2, *gate)
    assert run.metrics()[0]["evaluation"] == one


@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_layouts_give_the_scores_of_one_rank(program, any_launcher, data, gate, one, tmp_path, layout):
    ranks, words = LAYOUTS[layout]
    run = RankRun(program, tmp_path, data, "many").on(any_launcher, ranks, *gate, *words)
    found = run.metrics()[0]["evaluation"]
    # No two candidates of these rows are within float32's bound of each other, so the accuracies are equal.
    assert found["words"] == one["words"]
    # The perplexity is the exponential of a mean over some hundred words. The log-probabilities in it follow from sums of some hundred
    # products, the errors of which are below 2^-24 of their terms; a hundred of them bound the mean.
    for metric, score in one["texts"].items():
        assert found["texts"][metric]["value"] == pytest.approx(score["value"], rel=100 * 2**-24)


def test_a_rule_stops_all_ranks_with_77(program, any_launcher, data, gate, tmp_path):
    run = RankRun(program, tmp_path, data, "stopped")
    run.on(any_launcher, 2, *gate, "train.steps=5", 'eval.stop_if=["texts > 1"]', expect=77)
    assert "stopped by the rule" in run.said and run.checkpoint(1).exists()
    assert len(run.metrics()) == 1
    last = json.loads((run.folder / "events.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["exit_code"]) == ("end", 77)


def test_what_is_wrong_is_told_once_for_all_ranks(program, any_launcher, data, gate, tmp_path):
    run = RankRun(program, tmp_path, data, "refused")
    run.on(any_launcher, 2, *gate, 'eval.stop_if=["wrds > 1"]', expect=2)
    assert run.said.count("eval.tasks has no") == 1 and not run.folder.exists()
