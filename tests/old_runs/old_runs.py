#!/usr/bin/env python3
"""Small run folders that versions before this one wrote, and what resuming each of them for three steps gives.

  old_runs.py write NAME...     trains these runs with build/athanor and adds their folders here, with the numbers that follow
  old_runs.py names             prints the runs that are described below

A folder that is here is never written again, since it stands for the runs that users have: a later version must resume it to the
same numbers (tests/mpi/test_old_runs.py). A new run is added for what none of these has. In each folder are

  run.toml        what the user wrote
  run/            the run folder, with a full checkpoint of step 3; killed after step 4
  expected.json   the commit, the libtorch and the path of products, and steps 4 to 6 by the version that wrote it: loss and gradient norm
  expected.safetensors   the weights after step 6, in fp32; not of a model that transformers cannot have
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SAVED, LAST = 3, 6

# Its tiles have the same bits on every x86-64 that has AVX2, so that what was written with them is compared bit by bit there.
PATH = "avx2" if " avx2 " in pathlib.Path("/proc/cpuinfo").read_text() else "default"
ENVIRONMENT = {"ATHANOR_MATMUL": PATH, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}

COMMON = """
[model]
hidden_size = 24
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
vocab_size = 304
max_position_embeddings = 64
{model}

[data]
path = "data"

[train]
run_dir = "run"
steps = 6
global_batch_size = 4
micro_batch_size = 2
seed = 5
num_threads = 1
{train}

[checkpoint]
interval = 3
model_interval = 0
async = false

[metrics]
gemm_peak_tflops = 0.1
tensorboard = false

[optimizer]
lr = 1e-2
min_lr = 1e-3
warmup_steps = 2
{optimizer}
"""

DENSE = 'family = "{}"\nintermediate_size = 40\n'
SPARSE = 'family = "{}"\nintermediate_size = 16\nnum_experts = 4\nnum_experts_per_tok = 2\n'

# name → number of ranks, and what the file of the user has in addition to COMMON
RUNS = {
    "dense": (1, {
        "model": DENSE.format("llama") + "tie_word_embeddings = true",
        "train": 'dtype = "float32"',
        "optimizer": 'max_grad_norm = 0.5\nno_weight_decay = ["*norm.weight"]',
    }),
    "experts_over_ranks": (2, {
        "model": SPARSE.format("olmoe"),
        "train": 'dtype = "float32"',
        "optimizer": "",
        "more": '[parallelism]\nexpert_parallel_degree = 2\nsharding = "ep_aware"\nbucket_mb = 0.01\n',
    }),
    "experts_bf16": (2, {
        "model": SPARSE.format("olmoe"),
        "train": 'dtype = "bfloat16"',
        "optimizer": "",
        "more": '[moe]\nbias_update_rate = 0.01\n[parallelism]\nexpert_parallel_degree = 2\nsharding = "ep_aware"\n',
    }),
    "muon_qk_clip": (1, {
        "model": DENSE.format("olmo") + "clip_qkv = 2.0",
        "train": 'dtype = "bfloat16"',
        "optimizer": 'name = "muon"\nqk_clip = 0.03\n[[optimizer.groups]]\nmatch = ["embedding", "output"]\nname = "adamw"\nlr = 3e-3',
    }),
    "sophiag": (1, {
        "model": DENSE.format("qwen3") + "head_dim = 8",
        "train": 'dtype = "float32"',
        "optimizer": 'name = "sophiag"\nhessian_interval = 2',
    }),
    "two_phases": (1, {
        "model": SPARSE.format("qwen3_moe") + "head_dim = 8\nnorm_topk_prob = true",
        "train": 'dtype = "bfloat16"\n[[train.stages]]\nname = "first"\nsteps = 4\n'
                 '[[train.stages]]\nname = "second"\nsteps = 2\nlr = 2e-3\nmin_lr = 2e-4\nglobal_batch_size = 2',
        "optimizer": "",
    }),
}

NOT_EXPORTED = {"experts_bf16"}  # it has a router bias


def run_toml(name):
    texts = {"more": "", **RUNS[name][1]}
    return COMMON.format(**texts).lstrip() + "\n" + texts["more"]


def copy(name, folder):
    """Copies the run and its data to `folder`, where they can be changed."""
    shutil.copytree(HERE / name, folder, dirs_exist_ok=True)
    shutil.copytree(HERE / "data", folder / "data", dirs_exist_ok=True)


def numbers(folder):
    """Returns the loss and the gradient norm of the steps after the checkpoint."""
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in ("step", "loss", "grad_norm")} for line in lines if line["step"] > SAVED]


def made_with(folder):
    """Returns what the bits of the last attempt depend on."""
    events = [json.loads(line) for line in (folder / "run" / "events.jsonl").read_text().splitlines()]
    last = [event for event in events if event["event"] == "start"][-1]
    return {"libtorch": last["libtorch"], "matmul": last["matmul"]}


def weights(path):
    """Returns tensor → its numbers, of a safetensors file of fp32 alone."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    found = {}
    for tensor, entry in header.items():
        if tensor != "__metadata__":
            first, end = entry["data_offsets"]
            found[tensor] = struct.unpack(f"<{(end - first) // 4}f", data[begin + first:begin + end])
    return found


def train(name, folder, program, code=0, **environment):
    """Starts or continues the run in `folder`, on its number of ranks, which find each other as those of torchrun do."""
    sys.path.insert(0, str(ROOT / "tests" / "mpi"))
    import torchrun_like
    ended, out, err, _ = torchrun_like.TorchrunLike().run(RUNS[name][0], program, "train", "run.toml", cwd=folder,
                                                          env={**ENVIRONMENT, **environment})
    assert ended == code, f"{name}: exit code {ended}\n{out}{err}"


def export(folder, program):
    """Writes the newest weights as fp32; returns their file."""
    subprocess.run([str(program), "export", "run", "--out", "model", "--overwrite", "--dtype", "float32"], cwd=folder, check=True, capture_output=True)
    return folder / "model" / "model.safetensors"


def write(name, program):
    place = HERE / name
    if place.exists():
        sys.exit(f"{place} is there: an old run is never written again")
    work = HERE / f"{name}.new"
    shutil.copytree(HERE / "data", work / "data")
    (work / "run.toml").write_text(run_toml(name))
    train(name, work, program, code=137, ATHANOR_FAULT=f"train.after_step:kill@{SAVED + 1}")
    shutil.copytree(work / "run", place / "run", ignore=shutil.ignore_patterns("*.log", "lock", "matmul.json"))
    shutil.copy(work / "run.toml", place)
    train(name, work, program)
    if name not in NOT_EXPORTED:
        shutil.copy(export(work, program), place / "expected.safetensors")
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    (place / "expected.json").write_text(json.dumps({"commit": commit, "made_with": made_with(work), "steps": numbers(work)}, indent=1) + "\n")
    shutil.rmtree(work)


if __name__ == "__main__":
    if sys.argv[1:] == ["names"]:
        print(*RUNS)
    elif len(sys.argv) > 2 and sys.argv[1] == "write":
        for chosen in sys.argv[2:]:
            write(chosen, ROOT / "build" / "athanor")
    else:
        sys.exit(__doc__)
