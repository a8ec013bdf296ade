"""Which runs the comparison has, and what each of them sets."""
import dataclasses
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = (1, 2, 3)
WARMUP = 50


@dataclasses.dataclass(frozen=True)
class Kind:
    """A model, or a way of balancing its experts."""

    name: str
    recipe: str
    settings: tuple = ()


KINDS = (
    Kind("dense", "dense.toml"),
    Kind("sparse", "sparse.toml"),
    Kind("sparse, no balancing", "sparse.toml", (("moe.router_aux_loss_coef", 0),)),
    Kind("sparse, SWIPE", "sparse.toml", (("moe.router_aux_loss_coef", 0), ("moe.balance", '"swipe"'))),
)
SWEPT = KINDS[:2]  # the other two take the rate of the sparse model


def slug(kind):
    return kind.name.replace(", ", "-").replace(" ", "-").lower()


def settings_of(kind, folder, run, seed, lr, steps, evaluations=10):
    """Returns the `table.key` settings of a run as a dict."""
    every = max(1, steps // evaluations)
    found = {"data.path": folder / "data", "train.run_dir": run, "train.steps": steps, "train.seed": seed,
             "train.validation_interval": every, "optimizer.lr": lr, "optimizer.min_lr": lr / 10, "optimizer.warmup_steps": min(WARMUP, steps // 10),
             "checkpoint.model_interval": steps}
    if evaluations > 1:
        found |= {"eval.interval": every, "eval.on_start": "true", "eval.data": folder / "eval", "eval.tasks": '["perplexity"]'}
    return found | dict(kind.settings)
