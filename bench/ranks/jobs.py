"""Jobs of several ranks for the benchmarks in this folder: their training data, one job, and the times of its steps."""
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def prepare(athanor, folder, documents=400):
    """Prepares shards of 512 tokens of invented words, with a byte-level tokenizer trained on them."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 9))) for _ in range(3000)]
    texts = folder / "texts.jsonl"
    with open(texts, "w", encoding="utf-8") as out:
        for _ in range(documents):
            out.write(json.dumps({"text": " ".join(draw.choices(words, k=1200))}) + "\n")
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    tokenizer = folder / "tokenizer.json"
    subprocess.run([athanor, "tokenizer", "train", "--vocab-size", "8192", "--out", tokenizer, texts], **quiet)
    subprocess.run([athanor, "prepare", "--tokenizer", tokenizer, "--seq-len", "512", "--out", folder / "data", texts],
                   **quiet)
    return folder / "data"


def launcher(ranks):
    if ranks == 1:
        return []
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [mpirun, *root, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", "-n", str(ranks)]


class Job:
    """One run of `athanor train`; its steps except the first two, which fill caches."""

    def __init__(self, athanor, config, folder, ranks, settings):
        self.folder = pathlib.Path(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        words = {"train.run_dir": self.folder, "train.num_threads": 1, "train.validation_interval": 0,
                 "checkpoint.interval": 0, "checkpoint.model_interval": 0, "optimizer.warmup_steps": 1,
                 "metrics.tensorboard": "false", "metrics.gemm_peak_tflops": 1, **settings}
        command = [*launcher(ranks), athanor, "train", config]
        for key, value in words.items():
            command += ["--set", f"{key}={value}"]
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, text=True, env=dict(os.environ, OMP_NUM_THREADS="1"))

    def wait(self):
        _, errors = self.process.communicate()
        if self.process.returncode:
            raise SystemExit(f"the job failed:\n{errors}")
        self.log = errors
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        self.steps = [json.loads(line) for line in lines][2:]
        return self

    def median(self, key):
        return statistics.median(step[key] for step in self.steps)
