"""`athanor verify`: every layout computes what one rank computes, and planted faults are named.

Layouts are drawn from seeds (layouts.py). Those here have together everything that can be drawn; `make test-all` draws 200 more in
each type (scripts/fuzz_layouts). `make test` runs each planted fault in float32; `make test-all` runs the others too.
"""
import pathlib
import re
import subprocess

import pytest

import launchers
import layouts

SAMPLE = range(1, 49)
TYPES = ["float32", "bfloat16"]

# Three members of the sample with several kinds of ranks, and seeds whose layouts have two ranks: together they draw everything that
# layouts.covered counts (test_the_short_sample_has_what_the_whole_one_has), in little time, on guarded devices as well. In bf16, where a
# layout is compared several times, these take the least time.
SHORT_SAMPLE = [12, 33, 604, 717, 770, 853, 1071, 2269, 3095, 114, 1545, 1803]
SHORT_SAMPLE_IN_BF16 = [101, 105]


def slow_unless(is_short, *values):
    """A set of parameters that only `make test-all` runs, unless it is one of the short ones."""
    return pytest.param(*values, marks=() if is_short else pytest.mark.slow)

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
    """The result of a job."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit code {self.code}\n{self.out[-5000:]}{self.err[-3000:]}"

    def failures(self):
        return [line for line in self.out.splitlines() if line.startswith("FAIL ")]

    def last_line(self):
        return self.out.strip().splitlines()[-1]


@pytest.fixture
def verify(program, tmp_path):
    """Runs verify over ranks. A dictionary means a configuration with small sizes."""
    launcher = next((found for found in map(launchers.find, ("Open MPI", "MPICH"))
                     if found and launchers.plugin(program("athanor"), found.name).exists()), None)
    if launcher is None:
        pytest.skip("no MPI that has both an mpirun on the PATH and a plugin of ours (libathanor_mpi_*.so)")

    def run(configuration, ranks, *options, faults="", plant=None):
        config = configuration
        if isinstance(configuration, dict):
            config = tmp_path / "run.toml"
            config.write_text(layouts.toml_of(configuration))
            options = ("--keep-size", *options)
        if plant:
            options = (*options, "--plant", plant)
        code, out, err, _ = launcher.run(ranks, program("athanor"), "verify", config, *options, timeout=300,
                                         env={"ATHANOR_FAULT": faults})
        return Done(code, out, err)

    return run


def test_the_short_sample_has_what_the_whole_one_has():
    assert layouts.covered(SHORT_SAMPLE) >= layouts.covered(SAMPLE)


@pytest.mark.parametrize("seed", SHORT_SAMPLE)
def test_a_drawn_layout_computes_what_one_rank_computes(verify, seed):
    drawn = layouts.draw_layout(seed)
    done = verify(drawn.fields, drawn.ranks, "--steps", 3, *drawn.options("float32"))
    assert done.code == 0, f"seed {seed}, {drawn.ranks} ranks\n{drawn.toml()}{done}"
    assert done.last_line().startswith("PASS: ")


@pytest.mark.parametrize("seed", SHORT_SAMPLE_IN_BF16)
def test_a_drawn_layout_computes_in_bfloat16_what_one_rank_computes(verify, seed):
    drawn = layouts.draw_layout(seed, most_ranks=8)
    done = verify(drawn.fields, drawn.ranks, "--steps", 3, *drawn.options("bfloat16"))
    assert done.code == 0, f"seed {seed}, {drawn.ranks} ranks\n{drawn.toml()}{done}"
    assert done.last_line().startswith("PASS: ")


# The planted fault, and what must be named for it.
PLANTED = {
    "grad.missing_reduction": r"gradients, step 1: model\.",
    "grad.doubled_reduction": r"gradients, step 1: model\.",
    "grad.wrong_group": r"gradients, step 1: model\.layers\.\d\.mlp\.experts\.",
    "grad.wrong_scale": r"gradients, step 1: (model\.|lm_head)",
    "grad.router_unsynchronised": r"gradients, step 1: model\.layers\.\d\.mlp\.gate\.weight",
    "router.count_twice": r"expert counts: (chosen|taken) \(sparse layer 0, expert \d",
    "loss.divided_twice": r"loss and its parts: loss",
    "norm.one_shard": r"gradient norm: gradient norm|reports norm",
    "grad.crossed_buckets": r"gradients, step 1: (model\.|lm_head)",
}

# Faults of optimizers, in the layout of four data ranks with that optimizer: every update follows from the run's own gradients,
# so a wrong one is named in both types by the parameter, or the expert, that it is an update of; and so are its second backwards.
LAMB, MUON = {"optimizer.name": "lamb"}, {"optimizer.name": "muon"}
SOPHIAG = {"optimizer.name": "sophiag", "optimizer.hessian_interval": 1}
HESSIANS = "Hessians|parameters"
# The configuration, what must be named, and the only quantities in which something is wrong.
PLANTED_IN_OPTIMIZERS = {
    "lamb.own_part_of_norm": (LAMB, r"step 1: parameters: (model\.|lm_head)", "parameters"),
    "lamb.ratio_of_all_experts": (LAMB, r"step 1: parameters: model\.layers\.\d\.mlp\.experts\.\w+_proj\.weight\[\d\]", "parameters"),
    "muon.crossed_parts": (MUON, r"step 1: parameters: model\.layers\.\d\.\S+_proj\.weight", "parameters"),
    "muon.stale_home": (MUON, r"step 2: parameters: model\.layers\.\d\.\S+_proj\.weight", "parameters"),
    "sophiag.own_seed": (SOPHIAG, r"step 1: drawn labels: labels \(sequence \d, token \d+: \d+ instead of \d+; \d+ of 120 differ\)", "drawn labels"),
    "sophiag.scale_of_one_rank": (SOPHIAG, r"gradients, drawn labels: (model\.|lm_head)", "gradients"),
    "sophiag.stale_hessian": (SOPHIAG, r"step 2: Hessians: (model\.|lm_head)", HESSIANS),
    "sophiag.targets_of_one_rank": (SOPHIAG, r"step 1: Hessians: (model\.|lm_head)", HESSIANS),
}

# Two tensor ranks in each of two stages, and other ways to share the model.
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
Z_LOSS = {"moe.router_z_loss_coef": 0.1}
PLANTED_IN_SHARED = {
    "tensor.missing_all_reduce": ({}, r"gradients, step 1: model\.|loss and its parts: loss"),
    "tensor.doubled_all_reduce": ({}, r"gradients, step 1: model\.|loss and its parts: loss"),
    "tensor.vocabulary_offset": ({}, r"gradients, step 1: model\.embed_tokens"),
    "sequence.norm_unsynchronised": (SEQUENCE, r"(summed gradient of|gradients, step 1:) model\.(layers\.\d\.\w+layernorm|norm)\.weight"),
    "pipeline.tied_once": (TIED, r"gradients, step 1: model\.embed_tokens"),
    "pipeline.aux_lost": (AUX, r"loss and its parts: aux|gradients, step 1: model\.layers\.\d\.mlp\.gate"),
    "pipeline.microbatch_swapped": ({}, r"loss and its parts: loss|gradients, step 1: model\."),
    "pipeline.wrong_dtype": ({}, r"gradients, step 1: model\."),
    "router.z_loss_lost_on_tensor_ranks": (Z_LOSS, r"gradients, step 1: model\.layers\.\d\.mlp\.gate\.weight"),
}


# In bf16, values that must be equal and are not are reported first, then what is furthest beyond its bound, in any step or kind
# of layer.
NAMED_IN_BF16 = {
    "tensor.missing_all_reduce": r"rank \d reports (aux|entropy|z) =",
    "tensor.vocabulary_offset": r"gradients.*: (lm_head|model\.embed_tokens)\.weight",
    "pipeline.tied_once": r"the summed gradient of model\.embed_tokens\.weight",
    "pipeline.microbatch_swapped": r"gradients.*: (lm_head|model\.)",
    "pipeline.wrong_dtype": r"gradients.*: (lm_head|model\.)",
}


def named_in(dtype, fault, named):
    if dtype != "bfloat16":
        return named
    return NAMED_IN_BF16.get(fault, named.replace("gradients, step 1:", "gradients.*:").replace(r"layers\.\d", r"layers\.[\d*]"))


# Two ranks, of which each has its own data and experts, or its own part of the model.
TWO = {"parallelism.data_parallel_shard_degree": 2}
TWO_TENSOR_RANKS = {"parallelism.pipeline_parallel_degree": 1}
TWO_STAGES = {"parallelism.tensor_parallel_degree": 1}
NEEDS_FOUR = ["muon.crossed_parts"]  # a matrix that two ranks share, and a copy of it


def in_both_types(names, short_in_bf16):
    """Each name with each type, on four ranks, and on two: these are short, in bfloat16 only a few of them."""
    rows = []
    for name in names:
        least = 4 if name in NEEDS_FOUR else 2
        short = [(name, dtype, least) for dtype in TYPES if dtype == "float32" or name in short_in_bf16]
        rows += [slow_unless(row in short, *row) for row in [*short, *((name, dtype, 4) for dtype in TYPES if (name, dtype, 4) not in short)]]
    return rows


@pytest.mark.parametrize("fault,dtype,ranks", in_both_types(PLANTED_IN_SHARED, ["pipeline.wrong_dtype"]))
def test_a_fault_planted_among_tensor_ranks_and_stages_is_named(verify, fault, dtype, ranks):
    fields, named = PLANTED_IN_SHARED[fault]
    named = named_in(dtype, fault, named)
    if ranks == 2:
        fields = {**fields, **(TWO_STAGES if fault.startswith("pipeline") else TWO_TENSOR_RANKS)}
    done = verify({**SHARED, **fields}, ranks, "--steps", 2, "--dtype", dtype, plant=fault)
    assert done.code == 1, done
    assert any(re.search(named, line) for line in done.failures()), str(done)


@pytest.mark.parametrize("shared,dtype", [slow_unless((shared, dtype) == ("all", "float32"), shared, dtype) for shared in ("all", "tied", "sequence", "aux") for dtype in TYPES])
def test_tensor_ranks_in_stages_without_faults_pass_and_repeat_their_bits(verify, shared, dtype):
    fields = {"tied": TIED, "sequence": SEQUENCE, "aux": AUX, "all": {**TIED, **SEQUENCE, **AUX}}[shared]
    done = verify({**SHARED, **fields}, 4, "--steps", 2, "--twice", "--dtype", dtype)
    assert done.code == 0, done


@pytest.mark.parametrize("fault,dtype,ranks", in_both_types(PLANTED, ["grad.wrong_scale"]))
def test_a_planted_fault_is_named(verify, fault, dtype, ranks):
    fields = {**MOE, **(TWO if ranks == 2 else {})}
    if fault == "router.count_twice":
        fields["parallelism.recompute"] = ["moe"]
    done = verify(fields, ranks, "--steps", 2, "--dtype", dtype, plant=fault)
    assert done.code == 1, done
    assert any(re.search(named_in(dtype, fault, PLANTED[fault]), line) for line in done.failures()), done
    assert f"planted on purpose: {fault}: " in done.err


@pytest.mark.parametrize("fault,dtype,ranks",
                         in_both_types(PLANTED_IN_OPTIMIZERS, ["sophiag.own_seed"]))
def test_a_fault_planted_in_an_optimizer_is_named_and_nothing_else_is(verify, fault, dtype, ranks):
    fields, named, quantities = PLANTED_IN_OPTIMIZERS[fault]
    done = verify({**MOE, **(TWO if ranks == 2 else {}), **fields}, ranks, "--steps", 2, "--dtype", dtype, plant=fault)
    assert done.code == 1, done
    assert done.failures() and all(re.search(quantities, line) for line in done.failures() if line.startswith("FAIL step")), done
    assert any(re.search(named, line) for line in done.failures()), done


# `make test` has each optimizer and both ways, on two ranks.
@pytest.mark.parametrize("name,dtype,ranks", in_both_types(["sgd", "lamb", "sophiag", "muon"], []))
def test_an_optimizer_s_updates_are_those_of_its_replay_in_both_ways_to_share_a_model(verify, name, dtype, ranks):
    """The reference takes no update of the layout: only the replay compares them."""
    ways = [MOE, {**SHARED, **SEQUENCE}]
    if ranks == 2:
        ways = [{**MOE, **TWO}] if name in ("sgd", "muon") else [{**SHARED, **SEQUENCE, **TWO_TENSOR_RANKS}]
    for fields in ways:
        done = verify({**fields, "optimizer.name": name}, ranks, "--steps", 3, "--dtype", dtype)
        assert done.code == 0, done


def test_every_plant_is_listed_and_has_a_test(program):
    listed = subprocess.run([program("athanor"), "verify", "--plant", "list"], capture_output=True, text=True, check=True)
    tested = {**PLANTED, **PLANTED_IN_OPTIMIZERS, **PLANTED_IN_SHARED}
    assert [line.split(":")[0] for line in listed.stdout.splitlines()] == sorted(tested)


def test_an_unknown_plant_is_refused_with_the_nearest(verify):
    done = verify({**MOE, **TWO}, 2, plant="grad.wrong_group_")
    assert done.code == 2, done
    assert 'did you mean "grad.wrong_group"?' in done.err and "norm.one_shard" in done.err, done


def test_a_plant_that_a_layout_has_nothing_for_is_refused(verify):
    done = verify({**MOE, **TWO}, 2, "--steps", 1, plant="pipeline.tied_once")
    assert done.code == 2, done
    assert "--plant pipeline.tied_once: this layout has nothing for it; it needs a tied embedding, two stages" in done.err


def test_no_fault_in_numerics_comes_from_the_environment(verify):
    done = verify({**MOE, **TWO}, 2, "--steps", 1, faults="grad.wrong_scale:plant")
    assert done.code == 2, done
    assert done.err.count('no fault point is called "grad.wrong_scale"') == 1, done


@pytest.mark.parametrize("seed", [1, slow_unless(False, 2)])
def test_what_softmax_s_backward_rounds_is_not_held_against_the_gradient_that_it_leaves(verify, seed):
    """The first of two tokens sees only itself and the last has no target: gradients of queries and keys nearly vanish."""
    fields = {**MOE, "data.seq_len": 2, "train.seed": seed, "parallelism.data_parallel_shard_degree": 2,
              "parallelism.tensor_parallel_degree": 2, "parallelism.sequence_parallel": True}
    done = verify(fields, 4, "--steps", 3, "--dtype", "float32")
    assert done.code == 0, done


@pytest.mark.parametrize("seed", [1, slow_unless(False, 2)])
def test_what_an_only_choice_s_normed_weight_rounds_is_not_held_against_its_router_s_gradient(verify, seed):
    """The one weight of a token is 1 for any score: only rounding reaches the router."""
    fields = {**MOE, "train.seed": seed, "model.num_experts_per_tok": 1, "model.norm_topk_prob": True,
              "moe.router_aux_loss_coef": 0.0, "moe.router_z_loss_coef": 0.0, "model.num_hidden_layers": 4,
              "model.hidden_size": 8, "model.intermediate_size": 64, "model.vocab_size": 104,
              "model.initializer_range": 0.3, "model.routed_scaling_factor": 4.0, "checkpoint.model_interval": 0,
              "parallelism.data_parallel_shard_degree": 2, "parallelism.tensor_parallel_degree": 2}
    done = verify(fields, 4, "--steps", 3, "--dtype", "float32", "--keep-size")
    assert done.code == 0, done


def test_a_run_in_bfloat16_is_compared_in_both_types_and_the_last_line_says_so(verify):
    done = verify({**MOE, **TWO, "train.dtype": "bfloat16"}, 2, "--steps", 2, "--draws", 2)
    assert done.code == 0, done
    assert re.match(r"PASS: this layout \(2 ranks: .*\) agrees with one rank in float32 \(data 1\) and bfloat16 \(data 1 to 2\)",
                    done.last_line()), done
    done = verify({**MOE, **TWO, "train.dtype": "bfloat16"}, 2, "--steps", 2, "--dtype", "bfloat16", plant="loss.divided_twice")
    assert done.code == 1, done
    assert re.match(r"FAIL: this layout \(.*\) differs from one rank in bfloat16", done.last_line()), done


def test_a_run_in_float32_is_compared_in_that_alone(verify):
    done = verify({**MOE, **TWO, "train.dtype": "float32"}, 2, "--steps", 2)
    assert done.code == 0 and "bfloat16" not in done.out, done


def test_one_rank_has_nothing_to_be_compared_with(verify):
    done = verify({**MOE, "parallelism.data_parallel_shard_degree": 1, "parallelism.expert_parallel_degree": 1}, 1)
    assert done.code == 2 and "PASS" not in done.out, done
    assert "mpirun -n" in done.err, done


def test_the_same_layout_without_faults_passes_and_repeats_its_bits(verify):
    done = verify(MOE, 4, "--steps", 3, "--twice", "--dtype", "float32")
    assert done.code == 0, done
    assert "equal" in next(line for line in done.out.splitlines() if line.startswith("a second run"))


def test_half_the_ranks_with_twice_the_microbatches_agree_with_one_rank_too(verify, tmp_path):
    """Gradient accumulation: the 4 ranks of 2 microbatches in the test above and 2 ranks of 4 have the same batch."""
    done = verify({**MOE, **TWO}, 2, "--steps", 3, "--dtype", "float32", "--keep", tmp_path / "kept")
    assert done.code == 0, done


@pytest.mark.parametrize("ranks", [3, slow_unless(False, 12)])
def test_mula_20b_s_layout_of_twelve_expert_ranks_and_of_fewer(verify, ranks):
    recipe = pathlib.Path(__file__).resolve().parents[2] / "recipes" / "mula-20b-a2b.toml"
    done = verify(recipe, ranks, "--set", "train.num_threads=1", "--set", "moe.dispatch=all_to_all",
                  "--set", f"parallelism.expert_parallel_degree={ranks}")
    assert done.code == 0, done
    assert f"expert {ranks}" in done.out


@pytest.mark.parametrize("recipe,pipeline,expert,layers", [
    slow_unless(False, "mula-100b-a7b", 4, 3, "layers 1 1 1 1"),
    slow_unless(False, "mula-100b-a7b", 2, 6, "layers 1 1"),
    slow_unless(True, "mula-100b-a7b", 2, 1, "layers 1 1"),
    slow_unless(True, "mula-220b-a10b", 3, 1, "layers 1 1 1"),
    slow_unless(False, "mula-220b-a10b", 8, 1, "layers 1 1 1 1 1 1 1 1"),
    slow_unless(False, "mula-220b-a10b", 4, 3, "layers 1 1 1 1"),
])
def test_the_layouts_of_mula_s_pipelines_with_fewer_expert_ranks(verify, recipe, pipeline, expert, layers):
    path = pathlib.Path(__file__).resolve().parents[2] / "recipes" / f"{recipe}.toml"
    done = verify(path, pipeline * expert, "--set", "train.num_threads=1", "--set", f"parallelism.expert_parallel_degree={expert}",
                  "--set", f"parallelism.pipeline_parallel_degree={pipeline}")
    assert done.code == 0, done
    assert f"expert {expert}" in done.out and f"pipeline {pipeline} (1f1b, {layers})" in done.out, done


def test_faults_of_a_layout_are_all_told_once(verify):
    fields = {**MOE, **TWO, "parallelism.expert_parallel_degree": 3, "train.global_batch_size": 5}
    done = verify(fields, 2)
    assert done.code == 2, done
    assert done.err.count("parallelism.expert_parallel_degree (3) must divide model.num_experts (8)") == 1
    assert done.err.count("train.global_batch_size (5)") == 1
