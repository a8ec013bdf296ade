"""Far more collectives of one group at once than may be in flight: buckets of one tensor, in a model of many layers."""
import pytest

from test_runs import RankRun, data, open_mpi  # noqa: F401

DEEP = ["model.num_hidden_layers=160", "model.num_experts=2", "model.num_experts_per_tok=1", "model.hidden_size=32",
        "model.intermediate_size=8", "optimizer.warmup_steps=0", "train.steps=2", "train.validation_interval=0", "checkpoint.interval=0", "checkpoint.model_interval=0"]
LAYOUTS = {
    "none": ["parallelism.sharding=none"],
    "none, checked": ["parallelism.sharding=none", "parallelism.check_collectives=true"],
    "hierarchical": ["parallelism.sharding=hierarchical", "parallelism.data_parallel_replicate_degree=2"],
}


@pytest.fixture(scope="module")
def norms(program, data, tmp_path_factory):  # noqa: F811
    """Returns the gradient norms of one rank."""
    return [line["grad_norm"] for line in RankRun(program, tmp_path_factory.mktemp("one"), data, "one").alone(*DEEP).metrics()]


@pytest.mark.parametrize("layout", [pytest.param(layout, id=name, marks=[] if name != "none" else pytest.mark.slow)
                                    for name, layout in LAYOUTS.items()])
def test_a_thousand_buckets_in_flight_are_summed_right(open_mpi, program, data, tmp_path, norms, layout):  # noqa: F811
    many = RankRun(program, tmp_path, data, "many").on(open_mpi, 2, *DEEP, *layout, "parallelism.bucket_mb=0.0001")
    assert [line["grad_norm"] for line in many.metrics()] == pytest.approx(norms, rel=1e-4)
