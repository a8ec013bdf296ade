"""Sums and gathers in two levels, within nodes and between them, have the bits of those in one level: whole runs are equal."""
import json

import pytest

from test_runs import RankRun, data, open_mpi  # noqa: F401

NODES = ["topology.ranks_per_node=2", "topology.nodes_per_supernode=1"]  # four ranks on two nodes
LAYOUTS = {
    "data": ["parallelism.sharding=optimizer"],
    "bfloat16": ["parallelism.sharding=optimizer", "train.dtype=bfloat16"],
    "replicated": ["parallelism.sharding=none"],
    "replicated experts": ["parallelism.sharding=none", "parallelism.expert_parallel_degree=2", "moe.dispatch=all_to_all"],
    "experts": ["parallelism.expert_parallel_degree=2", "moe.dispatch=all_to_all"],
}

SHORT = {"bfloat16", "replicated experts"}


def results(folder):
    """Returns what a training has made: the figures of its steps that are sums, and the hash of each piece of its checkpoints."""
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    kept = {"loss", "aux_loss", "z_loss", "grad_norm", "validation_loss", "rank_grad_norms", "expert_grad_norms"}
    figures = [{key: step[key] for key in sorted(kept & step.keys())} for step in steps]
    manifests = [json.loads(path.read_text()) for path in sorted(folder.glob("checkpoints/*/manifest.json"))]
    return figures, [manifest["pieces"] for manifest in manifests]


@pytest.mark.parametrize("layout", [pytest.param(name, marks=[] if name in SHORT else pytest.mark.slow) for name in LAYOUTS])
def test_a_run_on_two_nodes_has_the_bits_of_a_run_on_one(open_mpi, program, data, tmp_path, layout):  # noqa: F811
    one = RankRun(program, tmp_path, data, "one").on(open_mpi, 4, *LAYOUTS[layout])
    two = RankRun(program, tmp_path, data, "two").on(open_mpi, 4, *LAYOUTS[layout], *NODES)
    figures, pieces = results(two.folder)
    assert len(figures) == 8 and len(pieces) > 1 and all(pieces)
    assert (figures, pieces) == results(one.folder)
    # In one level, two of the three ranks to which a rank sends are on the other node; in two levels, one is.
    sent = two.metrics()[1]["communication"]["data"]
    assert 0 < sent["bytes_outside"] < sent["bytes_inside"], sent
