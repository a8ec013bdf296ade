"""`athanor verify`: every layout computes what one rank computes, and what is planted as wrong is named.

Layouts are drawn from seeds (layouts.py); `make fuzz-layouts` draws more.
"""
import pathlib
import re

import pytest

import launchers
import layouts

SAMPLE = range(1, 49)

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


class Done:
    """How a job ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit code {self.code}\n{self.out[-5000:]}{self.err[-3000:]}"

    def failures(self):
        return [line for line in self.out.splitlines() if line.startswith("FAIL ")]


@pytest.fixture
def verify(program, tmp_path):
    """Runs verify over ranks. A dictionary stands for a configuration of small sizes of its own."""
    launcher = next((found for found in map(launchers.find, ("Open MPI", "MPICH"))
                     if found and launchers.plugin(program("athanor"), found.name).exists()), None)
    if launcher is None:
        pytest.skip("no MPI that has both an mpirun on the PATH and a plugin of ours (libathanor_mpi_*.so)")

    def run(configuration, ranks, *options, faults=""):
        config = configuration
        if isinstance(configuration, dict):
            config = tmp_path / "run.toml"
            config.write_text(layouts.toml_of(configuration))
            options = ("--keep-size", *options)
        code, out, err, _ = launcher.run(ranks, program("athanor"), "verify", config, *options, timeout=300,
                                         env={"ATHANOR_FAULT": faults})
        return Done(code, out, err)

    return run


@pytest.mark.parametrize("seed", SAMPLE)
def test_a_drawn_layout_computes_what_one_rank_computes(verify, seed):
    drawn = layouts.draw_layout(seed)
    done = verify(drawn.fields, drawn.ranks, "--steps", 3, *drawn.options)
    assert done.code == 0, f"seed {seed}, {drawn.ranks} ranks\n{drawn.toml()}{drawn.options}\n{done}"
    assert "PASS" in done.out


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

# Two tensor ranks in each of two stages, and what they share in other ways.
SHARED = {
    **MOE,
    "model.num_key_value_heads": 2,
    "model.num_hidden_layers": 3,
    "parallelism.data_parallel_shard_degree": 1,
    "parallelism.expert_parallel_degree": 1,
    "parallelism.tensor_parallel_degree": 2,
    "parallelism.pipeline_parallel_degree": 2,
}
TIED = {"model.tie_word_embeddings": True}
SEQUENCE = {"parallelism.sequence_parallel": True}
AUX = {"moe.router_aux_loss_coef": 0.5}
PLANTED_IN_SHARED = {
    "tensor.missing_all_reduce": ({}, r"gradients, step 1: model\.|loss and its parts: loss"),
    "tensor.doubled_all_reduce": ({}, r"gradients, step 1: model\.|loss and its parts: loss"),
    "tensor.vocabulary_offset": ({}, r"gradients, step 1: model\.embed_tokens"),
    "sequence.norm_unsynchronised": (SEQUENCE, r"(summed gradient of|gradients, step 1:) model\.(layers\.\d\.\w+layernorm|norm)\.weight"),
    "pipeline.tied_once": (TIED, r"gradients, step 1: model\.embed_tokens"),
    "pipeline.aux_lost": (AUX, r"loss and its parts: aux|gradients, step 1: model\.layers\.\d\.mlp\.gate"),
    "pipeline.microbatch_swapped": ({}, r"loss and its parts: loss|gradients, step 1: model\."),
    "pipeline.wrong_dtype": ({}, r"gradients, step 1: model\."),
}


@pytest.mark.parametrize("fault", PLANTED_IN_SHARED)
def test_a_fault_planted_among_tensor_ranks_and_stages_is_named(verify, fault):
    fields, named = PLANTED_IN_SHARED[fault]
    done = verify({**SHARED, **fields}, 4, "--steps", 2, faults=f"{fault}:plant")
    assert done.code == 1, done
    assert any(re.search(named, line) for line in done.failures()), str(done)


@pytest.mark.parametrize("fields", [TIED, SEQUENCE, AUX], ids=["tied", "sequence", "aux"])
def test_tensor_ranks_in_stages_without_faults_pass_and_repeat_their_bits(verify, fields):
    done = verify({**SHARED, **fields}, 4, "--steps", 2, "--twice")
    assert done.code == 0, done


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_named(verify, fault):
    fields = dict(MOE)
    if fault == "router.count_twice":
        fields["parallelism.recompute"] = ["moe"]
    done = verify(fields, 4, "--steps", 2, faults=f"{fault}:plant")
    assert done.code == 1, done
    assert any(re.search(PLANTED[fault], line) for line in done.failures()), done


def test_the_same_layout_without_faults_passes_and_repeats_its_bits(verify):
    done = verify(MOE, 4, "--steps", 3, "--twice")
    assert done.code == 0, done
    assert "equal" in next(line for line in done.out.splitlines() if line.startswith("a second run"))


def test_half_the_ranks_with_twice_the_microbatches_agree_with_one_rank_too(verify, tmp_path):
    """Gradient accumulation: 4 ranks of 2 microbatches and 2 ranks of 4 are the same batch."""
    for ranks in (4, 2):
        fields = {**MOE, "parallelism.data_parallel_shard_degree": ranks}
        done = verify(fields, ranks, "--steps", 3, "--keep", tmp_path / str(ranks))
        assert done.code == 0, done


def test_mula_20b_s_layout_of_twelve_expert_ranks(verify):
    recipe = pathlib.Path(__file__).resolve().parents[2] / "recipes" / "mula-20b-a2b.toml"
    done = verify(recipe, 12, "--set", "train.num_threads=1", "--set", "moe.dispatch=all_to_all")
    assert done.code == 0, done
    assert "expert 12" in done.out


@pytest.mark.parametrize("recipe,pipeline,expert,layers", [
    ("mula-100b-a7b", 4, 3, "layers 1 1 1 1"),
    ("mula-100b-a7b", 2, 6, "layers 1 1"),
    ("mula-220b-a10b", 8, 1, "layers 1 1 1 1 1 1 1 1"),
    ("mula-220b-a10b", 4, 3, "layers 1 1 1 1"),
])
def test_the_layouts_of_mula_s_pipelines_with_fewer_expert_ranks(verify, recipe, pipeline, expert, layers):
    path = pathlib.Path(__file__).resolve().parents[2] / "recipes" / f"{recipe}.toml"
    done = verify(path, pipeline * expert, "--set", "train.num_threads=1", "--set", f"parallelism.expert_parallel_degree={expert}",
                  "--set", f"parallelism.pipeline_parallel_degree={pipeline}")
    assert done.code == 0, done
    assert f"expert {expert}" in done.out and f"pipeline {pipeline} (1f1b, {layers})" in done.out, done


def test_faults_of_a_layout_are_all_told_once(verify):
    fields = {**MOE, "parallelism.expert_parallel_degree": 3, "train.global_batch_size": 6}
    done = verify(fields, 4)
    assert done.code == 2, done
    assert done.err.count("parallelism.expert_parallel_degree (3) must divide model.num_experts (8)") == 1
    assert done.err.count("train.global_batch_size (6)") == 1
