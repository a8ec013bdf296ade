"""`athanor verify`: every layout computes what one rank computes, and what is planted as wrong is named.

Layouts are drawn from seeds (layouts.py); scripts/fuzz_layouts draws more.
"""
import os
import pathlib
import re
import subprocess

import pytest

import layouts

SAMPLE = range(1, 33)

MOE = {
    "model.family": "olmoe",
    "model.hidden_size": 32,
    "model.num_attention_heads": 4,
    "model.num_hidden_layers": 2,
    "model.intermediate_size": 16,
    "model.num_experts": 8,
    "model.num_experts_per_tok": 2,
    "model.vocab_size": 96,
    "model.initializer_range": 0.1,
    "data.seq_len": 16,
    "train.micro_batch_size": 1,
    "train.global_batch_size": 8,
    "train.num_threads": 1,
    "optimizer.min_lr": 0.0,
    "parallelism.data_parallel_shard_degree": 4,
    "parallelism.expert_parallel_degree": 2,
    "parallelism.bucket_mb": 0.01,
    "moe.dispatch": "allgather",
}


@pytest.fixture(scope="session")
def verify(athanor, tmp_path_factory):
    """Runs verify over ranks; returns the CompletedProcess."""
    start = layouts.launcher()
    if start is None:
        pytest.skip("no mpirun of Open MPI; scripts/setup installs it")
    if not list(athanor.path.parent.glob("libathanor_mpi_openmpi*")):
        pytest.skip("this build has no plugin for Open MPI (libathanor_mpi_openmpi.so beside the program)")

    def run(configuration, ranks, *options, faults="", timeout=240):
        config = configuration
        if isinstance(configuration, dict):
            config = tmp_path_factory.mktemp("verify") / "run.toml"
            config.write_text(layouts.toml_of(configuration))
            options = ("--keep-size", *options)
        command = [*start, "-n", str(ranks), str(athanor.path), "verify", str(config), *map(str, options)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ATHANOR_FAULT": faults}
        return subprocess.run(["timeout", str(timeout), *command], capture_output=True, text=True, env=environment)

    return run


def said(done):
    return f"{done.stdout[-5000:]}{done.stderr[-3000:]}"


@pytest.mark.parametrize("seed", SAMPLE)
def test_a_drawn_layout_computes_what_one_rank_computes(verify, seed):
    drawn = layouts.draw_layout(seed)
    done = verify(drawn.fields, drawn.ranks, "--steps", 3)
    assert done.returncode == 0, f"seed {seed}, {drawn.ranks} ranks\n{drawn.toml()}\n{said(done)}"
    assert "PASS" in done.stdout


# What is planted, and what must be named for it.
PLANTED = {
    "grad.missing_reduction": r"gradients, step 1: model\.",
    "grad.doubled_reduction": r"gradients, step 1: model\.",
    "grad.wrong_group": r"gradients, step 1: model\.layers\.\d\.mlp\.experts\.",
    "grad.wrong_scale": r"gradients, step 1: (model\.|lm_head)",
    "grad.router_unsynchronised": r"gradients, step 1: model\.layers\.\d\.mlp\.gate\.weight",
    "router.count_twice": r"expert counts: (chosen|taken) \(sparse layer 0, expert \d",
    "loss.divided_twice": r"loss and its parts: loss",
    "norm.one_shard": r"gradient norm: gradient norm|reports norm",
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_named(verify, fault):
    fields = dict(MOE)
    if fault == "router.count_twice":
        fields["parallelism.recompute"] = ["moe"]
    done = verify(fields, 4, "--steps", 2, faults=f"{fault}:plant")
    assert done.returncode == 1, said(done)
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert any(re.search(PLANTED[fault], line) for line in lines), said(done)


def test_the_same_layout_without_faults_passes_and_repeats_its_bits(verify):
    done = verify(MOE, 4, "--steps", 3, "--twice")
    assert done.returncode == 0, said(done)
    assert "equal" in next(line for line in done.stdout.splitlines() if line.startswith("a second run"))


def test_half_the_ranks_with_twice_the_microbatches_agree_with_one_rank_too(verify, tmp_path):
    """Gradient accumulation: 4 ranks of 2 microbatches and 2 ranks of 4 are the same batch."""
    for ranks in (4, 2):
        fields = {**MOE, "parallelism.data_parallel_shard_degree": ranks}
        done = verify(fields, ranks, "--steps", 3, "--keep", tmp_path / str(ranks))
        assert done.returncode == 0, said(done)


def test_mula_20b_s_layout_of_twelve_expert_ranks(verify):
    recipe = pathlib.Path(__file__).resolve().parents[2] / "recipes" / "mula-20b-a2b.toml"
    done = verify(recipe, 12, "--set", "train.num_threads=1")
    assert done.returncode == 0, said(done)
    assert "expert 12" in done.stdout


def test_faults_of_a_layout_are_all_told_once(verify):
    fields = {**MOE, "parallelism.expert_parallel_degree": 3, "train.global_batch_size": 6}
    done = verify(fields, 4)
    assert done.returncode == 2, said(done)
    assert done.stderr.count("parallelism.expert_parallel_degree (3) must divide model.num_experts (8)") == 1
    assert done.stderr.count("train.global_batch_size (6)") == 1
