"""`athanor verify` with another reference, with a second layout, and at the run's own depth."""
import os
import re
import subprocess

import pytest

import layouts
from test_verify import MOE, SHARED, TWO, Done, verify  # noqa: F401  (a fixture)

DEEP = {
    "model.family": "olmo",
    "model.hidden_size": 64,
    "model.num_attention_heads": 4,
    "model.intermediate_size": 32,
    "model.vocab_size": 64,
    "data.seq_len": 64,
    "train.micro_batch_size": 1,
    "train.global_batch_size": 4,
    "train.num_threads": 1,
    "optimizer.min_lr": 0.0,
    "parallelism.bucket_mb": 0.001,
    "parallelism.sharding": "none",
}
MORE_OF_ALL = {
    "model.routed_scaling_factor": 2.5,
    "model.norm_topk_prob": True,
    "model.num_shared_experts": 1,
    "model.clip_qkv": 0.5,
    "model.rope_scaling.rope_type": "yarn",
    "model.rope_scaling.factor": 4.0,
    "moe.router_aux_loss_coef": 0.5,
    "moe.router_z_loss_coef": 0.1,
    "moe.balance": "capacity",
    "data.attention_scope": "document",
    "optimizer.max_grad_norm": 0.05,
    "optimizer.no_weight_decay": ["*norm.weight"],
    "checkpoint.model_interval": 0,
}


@pytest.mark.parametrize("fields", [{}, MORE_OF_ALL], ids=["plain", "more"])
def test_one_rank_without_a_launcher_computes_what_portable_forms_compute(program, tmp_path, fields):
    config = tmp_path / "run.toml"
    config.write_text(layouts.toml_of({**MOE, "parallelism.data_parallel_shard_degree": 1,
                                       "parallelism.expert_parallel_degree": 1, **fields}))
    run = subprocess.run([program("athanor"), "verify", config, "--keep-size", "--reference", "portable"],
                         capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    done = Done(run.returncode, run.stdout, run.stderr)
    assert done.code == 0, done
    assert "compared with portable" in done.out, done


@pytest.mark.parametrize("fields, ranks", [({**MOE, **TWO, **MORE_OF_ALL}, 2), (SHARED, 4),
                                           pytest.param({**MOE, **MORE_OF_ALL}, 4, marks=pytest.mark.slow)],
                         ids=["two ranks with experts", "tensor and pipeline", "experts"])
def test_layouts_compute_what_portable_forms_compute(verify, fields, ranks):  # noqa: F811
    done = verify(fields, ranks, "--reference", "portable")
    assert done.code == 0, done


def test_a_planted_fault_is_named_against_portable_forms_too(verify):  # noqa: F811
    done = verify({**MOE, **TWO}, 2, "--steps", 2, "--reference", "portable", plant="grad.wrong_scale")
    assert done.code == 1, done
    assert any(re.search(r"gradients, step 1: (model\.|lm_head)", line) for line in done.failures()), done


# The configuration, what changes, and the type; `make test` has one for each.
RESUMPTIONS = [
    pytest.param(MOE, ["parallelism.expert_parallel_degree=4", "parallelism.sharding=none"], "both", id="experts", marks=pytest.mark.slow),
    pytest.param(MOE, ["parallelism.expert_parallel_degree=1", "parallelism.data_parallel_shard_degree=1",
                       "parallelism.tensor_parallel_degree=2", "parallelism.pipeline_parallel_degree=2"], "bfloat16", id="cut up"),
    pytest.param(SHARED, ["parallelism.tensor_parallel_degree=1", "parallelism.pipeline_parallel_degree=1",
                          "parallelism.data_parallel_shard_degree=4", "parallelism.expert_parallel_degree=2",
                          "parallelism.sharding=hierarchical", "train.micro_batch_size=2"], "float32", id="put together"),
]


@pytest.mark.parametrize("fields, then, dtype", [*RESUMPTIONS, *(
    pytest.param(*each.values[:2], "both", id=f"{each.id} in both types", marks=pytest.mark.slow) for each in RESUMPTIONS[1:])])
def test_a_checkpoint_of_one_layout_goes_on_under_another_as_one_rank_without_a_break(verify, fields, then, dtype):  # noqa: F811
    done = verify({**fields, "moe.bias_update_rate": 0.01, "moe.aux_scope": "global", "checkpoint.model_interval": 0}, 4,
                  "--steps", 4, "--twice", *(["--dtype", dtype] if dtype != "both" else []), *(word for override in then for word in ("--then", override)))
    assert done.code == 0, done
    assert "after step 2 a checkpoint" in done.out, done


def test_what_goes_wrong_after_a_resumption_is_named_with_its_step(verify):  # noqa: F811
    done = verify({**MOE, **TWO}, 2, "--steps", 4, "--then", "optimizer.betas=[0.5, 0.6]")
    assert done.code == 1, done
    assert all(re.match(r"FAIL (step [34]:|… and)", line) for line in done.failures()), done


def test_a_second_layout_that_does_not_fit_is_refused_before_anything_runs(verify):  # noqa: F811
    done = verify({**MOE, **TWO}, 2, "--then", "parallelism.expert_parallel_degree=3")
    assert done.code == 2, done
    assert done.err.count("parallelism.expert_parallel_degree (3) must divide model.num_experts (8)") == 1, done


def test_with_keep_depth_all_layers_run_in_as_many_buckets(verify, tmp_path):  # noqa: F811
    config = tmp_path / "deep.toml"
    config.write_text(layouts.toml_of({**DEEP, "model.num_hidden_layers": 48}))
    done = verify(config, 2, "--keep-depth", "--steps", 2, "--dtype", "float32")
    assert done.code == 0, done
    assert "48 layers" in done.out and f"{48 * 7 + 2} gradient buckets" in done.out, done


def test_sums_of_1122_buckets_at_once_are_those_of_one_rank(verify, tmp_path):  # noqa: F811
    config = tmp_path / "deep.toml"
    config.write_text(layouts.toml_of({**DEEP, "model.num_hidden_layers": 160}))
    done = verify(config, 2, "--keep-depth", "--steps", 1, "--dtype", "float32")
    assert done.code == 0, done
