"""Trains and evaluates the runs of the comparison, and reads what they wrote. What is finished is not done again."""
import dataclasses
import json
import pathlib
import subprocess
import sys

import plan

TASK = plan.HERE.parents[1] / "examples" / "tasks" / "next_paragraph.yaml"


def call(command, log):
    with open(log, "w", encoding="utf-8") as out:
        code = subprocess.run(list(map(str, command)), stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    if code:
        sys.exit(f"bench/learning: {command[0]} {command[1]} ended with {code}; its last line (all are in {log}):\n"
                 + "\n".join(log.read_text(encoding="utf-8").splitlines()[-1:]))


def train(athanor, kind, folder, run, seed, lr, steps, evaluations=10):
    """Trains to the last step, from wherever an interrupted run stands."""
    if (run / "models" / f"step-{steps:08}").exists():
        return
    run.parent.mkdir(parents=True, exist_ok=True)
    words = [f"{key}={value}" for key, value in plan.settings_of(kind, folder, run, seed, lr, steps, evaluations).items()]
    call([athanor, "train", plan.HERE / kind.recipe, *(part for word in words for part in ("--set", word))], run.with_suffix(".log"))


def evaluate(athanor, run, rows, limit):
    """Scores the tasks; of public ones the first `limit` rows."""
    out = run.with_suffix(".scores.json")
    if not out.exists():
        call([athanor, "eval", run, "--tasks", "sciq,arc_easy,hellaswag,winogrande,openbookqa", "--data", rows, "--limit", limit, "--dtype", "float32",
              "--out", out], run.with_suffix(".eval.log"))
    own = run.with_suffix(".own.json")
    if not own.exists():
        call([athanor, "eval", run, "--tasks", TASK, "--data", run.parents[1] / "eval", "--dtype", "float32", "--out", own], run.with_suffix(".own.log"))
    return json.loads(out.read_text())["results"] | json.loads(own.read_text())["results"]


@dataclasses.dataclass
class Record:
    """The steps of a run."""

    flops: list        # done up to the end of each step
    losses: list
    seconds: float
    tokens: int
    validation: list   # (FLOPs, nats)
    books: list        # (FLOPs, perplexity of a byte of the held-out books)
    imbalance: list    # the most loaded expert over the mean, of each step, mean over the layers; None of dense models
    dead: list


def read(run):
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    done, flops = 0.0, []
    for step in steps:
        done += step["tflops"] * 1e12 * step["step_s"]
        flops.append(done)
    mean = lambda values: sum(values) / len(values) if values else None
    return Record(flops, [s["loss"] for s in steps], sum(s["step_s"] for s in steps), steps[-1]["tokens_seen"],
                  [(f, s["validation_loss"]) for f, s in zip(flops, steps) if "validation_loss" in s],
                  [(f, s["evaluation"]["perplexity"]["byte_perplexity"]["value"]) for f, s in zip(flops, steps) if "evaluation" in s],
                  [mean(s.get("expert_load_max_over_mean", [])) for s in steps], [sum(s.get("dead_experts", [])) for s in steps])
