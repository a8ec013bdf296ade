"""A run of the program that changes its device twice: the losses of its steps are those of a run on the CPU, up to rounding."""
import json
import random
import shutil

from running import Failed, Skipped

CONFIG = """[model]
family = "olmoe"
hidden_size = 128
num_hidden_layers = 2
num_attention_heads = 4
intermediate_size = 64
num_experts = 8
num_experts_per_tok = 2
vocab_size = 512
max_position_embeddings = 128
[data]
path = "data"
seq_len = 128
[train]
run_dir = "run"
steps = 12
global_batch_size = 4
micro_batch_size = 2
dtype = "float32"
[optimizer]
name = "adamw"
lr = 1e-3
warmup_steps = 2
[checkpoint]
interval = 4
"""
STEPS = 12


def prepare(machine, clock, folder, seq_len=128):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(400)]
    with open(folder / "text.jsonl", "w") as out:
        for _ in range(200 * seq_len // 128):
            out.write(json.dumps({"text": " ".join(draw.choices(words, k=200))}) + "\n")
    (folder / "run.toml").write_text(CONFIG)
    athanor = machine.program("athanor")
    machine.check_call([athanor, "tokenizer", "train", "--vocab-size", 512, "--out", folder / "tokenizer.json",
                        folder / "text.jsonl"], clock, "program-tokenizer")
    machine.check_call([athanor, "prepare", "--tokenizer", folder / "tokenizer.json", "--seq-len", seq_len, "--seed", 1,
                        "--out", folder / "data", folder / "text.jsonl"], clock, "program-prepare")


def train(machine, clock, folder, run, device, stop_after):
    """Trains up to a step; the next call of the same run continues it."""
    settings = {"data.path": folder / "data", "train.run_dir": folder / run, "train.device": device, "train.steps": stop_after,
                "optimizer.schedule": "constant"}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    machine.check_call([machine.program("athanor"), "train", folder / "run.toml", *words], clock, f"program-{run}-{stop_after}")


def metrics(folder, run):
    try:
        return [json.loads(line) for line in (folder / run / "metrics.jsonl").read_text().splitlines()]
    except (OSError, ValueError):
        raise Failed(f"{run}/metrics.jsonl is missing or has a broken line") from None


def losses(folder, run):
    return [line["loss"] for line in metrics(folder, run) if "loss" in line]


def run(machine, clock):
    if machine.device != "cuda":
        raise Skipped("the program knows no device that the host plays")
    folder = machine.out / "program"
    prepare(machine, clock, folder)
    train(machine, clock, folder, "cpu", "cpu", STEPS)
    for device, stop in (("cpu", 4), (machine.device, 8), ("cpu", STEPS)):
        train(machine, clock, folder, "both", device, stop)
    expected, found = losses(folder, "cpu"), losses(folder, "both")
    if len(found) != STEPS or expected[:4] != found[:4]:
        raise Failed(f"the first four steps, on the CPU, differ: {expected[:4]} and {found[:4]}")
    # In fp32 a loss is the mean of 508 terms with errors of about 2^-24 of each; twelve small steps multiply this by far less than
    # 2^10. A step of a wrong update differs by more than 10^-3.
    worst = max(abs(a - b) / abs(a) for a, b in zip(expected, found))
    if worst > 1e-4:
        raise Failed(f"losses differ by {worst:.1e} of their size: {expected} and {found}")
    return f"CPU to {machine.device} to CPU within {worst:.1e} of a run on the CPU", {"largest_difference": worst}
