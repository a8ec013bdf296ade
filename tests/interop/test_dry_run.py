"""`athanor verify --dry-run`: one rank's view of a job of any size, on a small machine."""
import json
import pathlib
import resource

import pytest

RECIPES = pathlib.Path(__file__).resolve().parents[2] / "recipes"
GIB = 1 << 30


def dry_run(athanor, recipe, ranks, *arguments):
    done = athanor.run("verify", RECIPES / f"{recipe}.toml", "--dry-run", "--ranks", ranks, "--json", *arguments)
    return json.loads(done.stdout)


def test_mula_220b_on_12288_ranks_takes_less_than_a_minute_and_a_gibibyte(athanor):
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    output, peak = athanor.measure("verify", RECIPES / "mula-220b-a10b.toml", "--dry-run", "--ranks", 12288, "--json",
                                   "--set", "train.global_batch_size=12288")
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime < 60
    assert peak < GIB
    run = json.loads(output)
    held = run["held_elements"]
    # 64 layers over 8 stages; 240 experts over 12 ranks.
    assert held["expert"] == 64 // 8 * 240 // 12 * 3 * 3072 * 1536
    assert run["in_flight"] == 8 - run["coordinates"]["pipeline"]
    assert run["memory_bytes"]["total"] < 64e9
    groups = {(line["what"], line["group"]) for line in run["sent"]}
    assert {("gradients", "data"), ("gradients", "expert_data"), ("weights", "data"), ("tokens", "expert"),
            ("stages", "pipeline")} <= groups


@pytest.mark.parametrize("ranks", [(0, 12287), pytest.param((0, 6144, 12287), marks=pytest.mark.slow)], ids=["two", "three"])
def test_the_rank_that_needs_most_is_found(athanor, ranks):
    arguments = ["--set", "train.global_batch_size=12288"]
    fullest = dry_run(athanor, "mula-220b-a10b", 12288, *arguments)["memory_bytes"]["total"]
    for rank in ranks:
        assert dry_run(athanor, "mula-220b-a10b", 12288, *arguments, "--rank", rank)["memory_bytes"]["total"] <= fullest


def test_the_bytes_of_a_checkpoint_are_given_for_each_node_and_both_choices_of_writers(athanor):
    replicas = 8
    run = dry_run(athanor, "mula-220b-a10b", 12288, "--set", "train.global_batch_size=12288", "--set", "topology.ranks_per_node=12",
                  "--set", "parallelism.sharding=hierarchical", "--set", f"parallelism.data_parallel_replicate_degree={replicas}")
    nodes = run["checkpoint_bytes_by_node"]
    scattered, first = nodes["scattered"], nodes["first"]
    assert len(scattered) == len(first) == 12288 // 12
    assert sum(scattered) == pytest.approx(sum(first)) == pytest.approx(12 * 220_205_681_664)
    assert min(scattered) > 0 and sum(written > 0 for written in first) == len(first) // replicas
    assert max(first) == pytest.approx(replicas * max(scattered))


def test_recomputation_and_sharding_lower_what_is_held(athanor):
    def memory(*settings):
        sets = [word for s in settings for word in ("--set", s)]
        return dry_run(athanor, "mula-20b-a2b", 96, *sets)["memory_bytes"]

    plain, again = memory("parallelism.recompute=[]"), memory('parallelism.recompute=["norm", "attention", "moe"]')
    assert again["activations_kept"] < plain["activations_kept"] / 3
    assert memory('parallelism.sharding="none"')["moments"] > 7 * plain["moments"]


def test_the_report_says_where_the_rank_is_and_what_it_sends(athanor):
    text = athanor.run("verify", RECIPES / "mula-100b-a7b.toml", "--dry-run", "--ranks", 3072, "--rank", 3071).stdout
    for part in ("rank 3071", "norm and output", "activations kept", "in flight", "reduce_scatter", "expert_data"):
        assert part in text


@pytest.mark.parametrize("ranks, words", [(100, "ranks"), (12, "data_parallel_shard_degree")])
def test_a_layout_that_does_not_fit_is_refused_as_in_training(athanor, ranks, words):
    done = athanor.run("verify", RECIPES / "mula-220b-a10b.toml", "--dry-run", "--ranks", ranks, check=False)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_plan_for_gpus_is_made_without_one_and_counts_what_no_tensor_is(athanor):
    def plan(*settings):
        sets = [word for s in settings for word in ("--set", s)]
        return dry_run(athanor, "mula-20b-a2b", 96, "--set", "topology.ranks_per_node=12", *sets)

    cpu, gpu = plan("train.device=cpu"), plan("train.device=cuda")
    assert "communicators" not in cpu["memory_bytes"]
    memory = gpu["memory_bytes"]
    assert memory["communicators"] == sum(gpu["communicator_bytes"].values())
    # Twelve expert ranks on a host: 32 channels to eleven others, 12 MiB each, and a ring and a tree of 24.
    assert gpu["communicator_bytes"]["expert"] >= 11 * 32 * 12 * 2**20
    assert memory["workspaces"] == 2 * 32 * 2**20 and "workspaces" not in cpu["memory_bytes"]
    parts = {name: bytes for name, bytes in memory.items() if name != "total"}
    assert memory["total"] == pytest.approx(sum(parts.values()))
    text = athanor.run("verify", RECIPES / "mula-20b-a2b.toml", "--dry-run", "--ranks", 96, "--set", "train.device=cuda").stdout
    for part in ("memory of the rank's device (cuda)", "buffers of communicators", "kept by the allocator", "workspaces of cuBLAS"):
        assert part in text
