"""The tables of docs/learning.md, as Markdown."""
import math
import statistics

TASKS = {"next_paragraph": "acc", "sciq": "acc", "arc_easy": "acc", "hellaswag": "acc_norm", "winogrande": "acc", "openbookqa": "acc"}
CHANCE = {"next_paragraph": 0.25, "sciq": 0.25, "arc_easy": 0.25, "hellaswag": 0.25, "winogrande": 0.5, "openbookqa": 0.25}
LAST = 20  # steps whose mean is the training loss at the end


def table(rows):
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *body])


def spread(values, digits=3):
    """Mean and, in brackets, the least and the most of the seeds."""
    return f"{statistics.mean(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def sweep_table(swept):
    rates = list(next(iter(swept.values())))
    return table([["model", *(f"rate {rate:g}" for rate in rates)], *([name, *(f"{losses[rate]:.3f}" for rate in rates)] for name, losses in swept.items())])


def loss_table(records):
    rows = [["model", "training loss", "validation loss", "byte perplexity of the held-out books", "tokens", "10¹² FLOPs", "seconds"]]
    for name, of_seeds in records.items():
        rows.append([name, spread([statistics.mean(r.losses[-LAST:]) for r in of_seeds]), spread([r.validation[-1][1] for r in of_seeds]),
                     spread([r.books[-1][1] for r in of_seeds]), f"{of_seeds[0].tokens:,}", f"{of_seeds[0].flops[-1] / 1e12:.1f}",
                     f"{statistics.mean(r.seconds for r in of_seeds):.0f}"])
    return table(rows)


def difference_table(records):
    """Differences to the first two kinds, seed by seed, with the standard error of their mean."""
    rows = [["validation loss", "mean difference", "standard error", "of each seed"]]
    for a, b in (("sparse", "dense"), ("sparse, no balancing", "sparse"), ("sparse, SWIPE", "sparse")):
        if a not in records:
            continue
        found = [x.validation[-1][1] - y.validation[-1][1] for x, y in zip(records[a], records[b])]
        error = statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else math.nan
        rows.append([f"{a} − {b}", f"{statistics.mean(found):+.3f}", f"{error:.3f}", ", ".join(f"{d:+.3f}" for d in found)])
    return table(rows)


def compute_to_reach(records):
    """The share of the dense model's compute at which the sparse one has its last validation loss, seed by seed."""
    shares = []
    for dense, sparse in zip(records["dense"], records["sparse"]):
        goal, before = dense.validation[-1][1], None
        for flops, loss in sparse.validation:
            if loss <= goal:
                if before:
                    flops = before[0] + (flops - before[0]) * (before[1] - goal) / (before[1] - loss)
                shares.append(flops / dense.flops[-1])
                break
            before = (flops, loss)
    return shares


def load_table(records):
    rows = [["model", "most loaded expert over the mean, last steps", "experts of 128 without a token in a step"]]
    for name, of_seeds in records.items():
        if of_seeds[0].imbalance[-1] is not None:
            rows.append([name, spread([statistics.mean(r.imbalance[-LAST:]) for r in of_seeds], 2), spread([statistics.mean(r.dead[-LAST:]) for r in of_seeds], 1)])
    return table(rows)


def task_table(scores):
    rows = [["task", "chance", *scores]]
    for task, metric in TASKS.items():
        cells = []
        for of_seeds in scores.values():
            values = [result[task][f"{metric},none"] for result in of_seeds]
            cells.append(f"{spread(values)} ± {of_seeds[0][task][f'{metric}_stderr,none']:.3f}")
        rows.append([f"{task} ({metric})", f"{CHANCE[task]}", *cells])
    return table(rows)


def all_tables(facts, swept, records, scores):
    shares = compute_to_reach(records)
    reached = ", ".join(f"{s:.2f}" for s in shares) or "none of the seeds reaches it"
    parts = [f"Text: {facts}", sweep_table(swept), loss_table(records), difference_table(records),
             "The sparse model has the dense one's last validation loss at these shares of its compute: " + reached,
             load_table(records), task_table(scores)]
    return "\n\n".join(parts)
