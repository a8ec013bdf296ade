"""The rate of learned routing in the first steps of a run, compared with forced uniform routing, in turns."""
import statistics

import checkpoint_round
from running import Skipped

STEPS = 100
# Two layers of OLMoE-1B-7B; the vocabulary is that of the prepared words.
SETTINGS = {"model.hidden_size": 2048, "model.num_attention_heads": 16, "model.intermediate_size": 1024, "model.num_experts": 64,
            "model.num_experts_per_tok": 8, "train.dtype": "bfloat16", "train.global_batch_size": 64, "train.micro_batch_size": 64,
            "train.steps": STEPS, "train.device": "cuda", "checkpoint.interval": 0, "checkpoint.model_interval": 0}


def seconds_of(machine, clock, folder, balance, turn):
    """The step times of a run, without the first ten."""
    name = f"routing-{balance}-{turn}"
    settings = {**SETTINGS, "data.path": folder / "data", "train.run_dir": folder / name, "moe.balance": balance}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    machine.check_call([machine.program("athanor"), "train", folder / "run.toml", *words], clock, name)
    return [line["step_s"] for line in checkpoint_round.metrics(folder, name) if line["step"] > 10]


def run(machine, clock):
    if machine.device != "cuda":
        raise Skipped("speed is measured on a GPU only")
    folder = machine.out / "routing"
    checkpoint_round.prepare(machine, clock, folder)
    times = {"none": [], "forced_uniform": []}
    for turn in range(2):
        for balance in times:
            times[balance] += seconds_of(machine, clock, folder, balance, turn)
    rate = statistics.median(times["forced_uniform"]) / statistics.median(times["none"])
    return f"learned routing keeps {rate:.2f} of the rate of forced uniform in its first {STEPS} steps", {"rate": rate}
