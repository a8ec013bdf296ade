"""MoDa's trade-off, counted in runs: a mapping determines which traffic stays within a supernode, and nothing else."""
from test_runs import RankRun, data, open_mpi  # noqa: F401

TOPOLOGY = ["topology.ranks_per_node=2", "topology.nodes_per_supernode=1"]  # four ranks, two in each
LAYOUT = ["parallelism.expert_parallel_degree=2", "moe.dispatch=all_to_all", "train.steps=4", *TOPOLOGY]

# The traffic of rank 0: its experts' elements (half of 8, with three matrices of 24 × 32, in two layers), reduce-scattered and
# gathered in fp32 between the two ranks that hold them, which sends half each time.
EXPERT_BYTES = 4 * 3 * 24 * 32 * 2 * 4


def traffic(run):
    return run.metrics()[1]["communication"]


def test_each_mapping_keeps_inside_what_the_other_sends_out(open_mpi, program, data, tmp_path):  # noqa: F811
    runs = {name: RankRun(program, tmp_path, data, name).on(open_mpi, 4, *LAYOUT, f"parallelism.mapping={name}")
            for name in ("expert_inner", "data_inner")}
    inner, outer = (traffic(run) for run in runs.values())

    assert inner["expert"]["bytes_inside"] > 0 and inner["expert"]["bytes_outside"] == 0  # tokens
    assert outer["expert"]["bytes_inside"] == 0
    assert outer["expert"]["bytes_outside"] == inner["expert"]["bytes_inside"]

    assert (inner["expert_data"]["bytes_inside"], inner["expert_data"]["bytes_outside"]) == (0, EXPERT_BYTES)
    assert (outer["expert_data"]["bytes_inside"], outer["expert_data"]["bytes_outside"]) == (EXPERT_BYTES, 0)

    for a, b in zip(*(run.metrics() for run in runs.values())):
        for key in ("loss", "aux_loss", "z_loss", "grad_norm", "rank_grad_norms", "expert_grad_norms"):
            assert a[key] == b[key], key  # coordinates determine the order of sums


def test_a_balance_group_over_ranks_costs_one_gather_for_each_routing(open_mpi, program, data, tmp_path):  # noqa: F811
    group = ["moe.balance=swipe", "moe.balance_group=4", "train.steps=4"]
    many = RankRun(program, tmp_path, data, "many").on(open_mpi, 4, *group, *LAYOUT)
    one = RankRun(program, tmp_path, data, "one").alone(*group, "train.micro_batch_size=4")
    layers, microbatches, others, choices = 2, 1, 3, 32 * 2
    gathers = traffic(many)["balance"]
    assert gathers["calls"] == layers * microbatches
    assert gathers["bytes_inside"] + gathers["bytes_outside"] == layers * microbatches * others * choices * 4
    for a, b in zip(many.metrics(), one.metrics()):
        assert a["reassigned_share"] == b["reassigned_share"]
        assert a["expert_load_max_over_mean"] == [1.0, 1.0]
