"""Small runs for tests: the data are made here, the model has a few thousand parameters, and results are read back."""
import json
import os
import random

EOS = "<|endoftext|>"

CONFIG = """
[model]
family = "{family}"
hidden_size = 32
num_hidden_layers = 2
num_attention_heads = 4
num_key_value_heads = 2
intermediate_size = 24
num_experts = {experts}
num_experts_per_tok = {topk}
vocab_size = 320
max_position_embeddings = 64

[data]
path = "{data}"

[train]
run_dir = "{run}"
steps = 8
global_batch_size = 4
micro_batch_size = 2
seed = 5
validation_interval = 4
validation_sequences = 8

[optimizer]
lr = 1e-2
min_lr = 1e-3
warmup_steps = 3

[checkpoint]
interval = 3
model_interval = 4

[metrics]
gemm_peak_tflops = 0.1
"""

# For benchmarks, which neither read data nor write a run.
BENCH_CONFIG = """\
[model]
family = "olmoe"
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 32
num_experts = 8
num_experts_per_tok = 2
vocab_size = 256
[data]
path = "is-not-read"
seq_len = 32
[train]
run_dir = "is-not-written"
dtype = "bfloat16"
global_batch_size = 4
micro_batch_size = 2
"""

ENDLESS = ["train.steps=1000000", "checkpoint.interval=100000", "checkpoint.model_interval=0", "train.validation_interval=0",
           "optimizer.schedule=constant"]


def events(run, *names):
    """Returns the events of the run, of these kinds."""
    lines = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if not names or line["event"] in names]


def make_data(athanor, folder):
    """Makes a tokenizer and prepared shards of a few hundred instances; returns the prepared folder."""
    rng = random.Random(7)
    words = "the quick brown fox jumps over the lazy dog and runs from it é 漢字 \n".split(" ")
    rows = [json.dumps({"text": " ".join(rng.choices(words, k=rng.randint(5, 80)))}) for _ in range(200)]
    (folder / "docs.jsonl").write_text("\n".join(rows) + "\n")
    athanor.run("tokenizer", "train", "--vocab-size", 300, "--special-token", EOS, "--out", folder / "tokenizer.json", folder / "docs.jsonl")
    athanor.run("prepare", "--tokenizer", folder / "tokenizer.json", "--seq-len", 32, "--seed", 1, "--validation-fraction", 0.1,
                "--out", folder / "data", folder / "docs.jsonl")
    return folder / "data"


class Run:
    """A configuration and its run folder."""

    def __init__(self, athanor, folder, data, family="olmoe"):
        self.athanor, self.folder = athanor, folder / "run"
        self.config = folder / "run.toml"
        sparse = "moe" in family or family == "mixtral"
        self.config.write_text(CONFIG.format(family=family, experts=8 if sparse else 0, topk=2 if sparse else 0, data=data,
                                             run=self.folder))

    def train(self, *overrides, fault=None, **options):
        """Runs `athanor train`; returns the CompletedProcess."""
        environment = dict(os.environ, **({"ATHANOR_FAULT": fault} if fault else {}))
        settings = [part for override in overrides for part in ("--set", override)]
        return self.athanor.run("train", self.config, *settings, env=environment, **options)

    def metrics(self):
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def numbers(self):
        """Returns the numbers that must not depend on when, where or in how many attempts the run ran."""
        names = ["step", "loss", "aux_loss", "z_loss", "grad_norm", "lr", "changed_share", "tokens_seen", "validation_loss",
                 "expert_load_max_over_mean", "expert_load_p95_over_mean", "dead_experts", "reassigned_share", "dropped_share",
                 "layer_router_entropy"]
        return [{name: line.get(name) for name in names} for line in self.metrics()]

    def checkpoints(self):
        return sorted(path.name for path in (self.folder / "checkpoints").iterdir())

    def hashes(self, step=8):
        """Returns tensor → hashes of its pieces: the bits of master and moments."""
        manifest = self.manifest(step)
        found = {}
        for piece in manifest["pieces"]:
            found.setdefault(piece["tensor"], []).append(piece["hash"])
        return found

    def manifest(self, step=8):
        return json.loads((self.folder / "checkpoints" / f"step-{step:08}" / "manifest.json").read_text())
