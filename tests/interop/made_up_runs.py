"""Run folders that no training has made: long ones, several of them, and such as an attacker would name."""
import json
import math
import random


def write_run(folder, steps, seed=0, level=2.0, experts=4, sources=(), events=(), settings=None, torn=False):
    """Writes metrics.jsonl, events.jsonl and config.toml of a run with a falling loss, one spike and some validation."""
    draw = random.Random(seed)
    folder.mkdir(parents=True)
    start = 1_700_000_000.0
    with open(folder / "metrics.jsonl", "w") as out:
        for step in range(1, steps + 1):
            loss = level + 7 * math.exp(-step / (steps / 8)) + draw.gauss(0, 0.05) + (4 if step == steps // 3 else 0)
            line = {"step": step, "loss": loss, "grad_norm": abs(draw.gauss(1, 0.2)), "lr": 1e-3 * (1 - step / steps), "changed_share": 0.99,
                    "tokens": 4096, "tokens_seen": 4096 * step, "tps": 1e4 + draw.gauss(0, 300), "mfu": 0.4, "step_s": 0.4, "data_s": 0.01,
                    "forward_s": 0.14, "backward_s": 0.2, "optimizer_s": 0.04, "forward_compute_s": 0.12, "forward_comm_s": 0.02,
                    "backward_compute_s": 0.15, "backward_comm_s": 0.05, "memory_bytes": 1 << 30, "peak_memory_bytes": 1 << 30,
                    "attempt": 1 + (step > steps // 2), "time": start + 0.41 * step + (3600 if step > steps // 2 else 0)}
            if step % max(1, steps // 5) == 0:
                line["validation_loss"] = loss + 0.1
            if experts:
                line["expert_load_max_over_mean"] = [1 + abs(draw.gauss(0, 0.3)) for _ in range(experts)]
            if sources:
                line["tokens_drawn"] = {source: 4096 * step * (i + 1) for i, source in enumerate(sources)}
            out.write(json.dumps(line) + "\n")
        if torn:
            out.write('{"step": 999999999, "loss"')
    lines = [{"event": "start", "time": start, "attempt": 1, "step": 0, "ranks": 8, "host": "node1"},
             {"event": "skip", "time": start + 9, "attempt": 1, "step": steps // 3, "text": "the loss is not finite"},
             {"event": "resume", "time": start + 3600, "attempt": 2, "step": steps // 2, "from": "checkpoints/x"}, *events,
             {"event": "end", "time": start + 7200, "attempt": 2, "step": steps, "exit_code": 0, "cause": "complete"}]
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    values = {"model.family": "olmoe", "optimizer.lr": 1e-3, "train.run_dir": str(folder)} | (settings or {})
    (folder / "config.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()))
    return folder


RANK_PARTS = ("data", "forward_compute", "forward_comm", "backward_compute", "backward_comm", "optimizer_compute", "optimizer_comm", "save", "evaluation",
              "other")


def add_rank_times(run, ranks, slow=2):
    """Gives every 20th step the times of its ranks, of which one computes 1.5 times as long and the others wait for it; of more than 32 ranks the
    extremes."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines[19::20]:
        times = {part: [0.01] * ranks for part in RANK_PARTS}
        times["forward_compute"] = [0.15 if rank == slow else 0.1 for rank in range(ranks)]
        times["backward_comm"] = [0.0 if rank == slow else 0.05 for rank in range(ranks)]
        if ranks <= 32:
            line["rank_times"] = times
            continue
        sums = {"compute": [sum(times[part][r] for part in RANK_PARTS if part.endswith("_compute")) for r in range(ranks)],
                "comm": [sum(times[part][r] for part in RANK_PARTS if part.endswith("_comm")) for r in range(ranks)]}
        line["rank_time_extremes"] = {
            part: {"least": {"rank": values.index(min(values)), "s": min(values)}, "mean": sum(values) / ranks,
                   "most": {"rank": values.index(max(values)), "s": max(values)}} for part, values in (times | sums).items()}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def add_attempts(run, attempts):
    """Writes what `athanor launch` leaves: of each attempt its hosts, and its verdict if it has ended."""
    for number, (hosts, verdict) in enumerate(attempts, 1):
        folder = run / "attempts" / f"{number:03}"
        folder.mkdir(parents=True)
        (folder / "hosts").write_text("".join(host + "\n" for host in hosts))
        if verdict:
            (folder / "verdict.json").write_text(json.dumps({"format": 1, "attempt": number} | verdict))
