"""Several GPUs, one for each rank: do all layouts train as one CPU does, and how fast is each axis?

The losses of every layout are compared with one run on the CPU. Speeds are those of `athanor train`, from the steps of
metrics.jsonl after the first few.
"""
import pathlib
import statistics
import sys

import checkpoint_round
from running import Failed, Skipped

HERE = pathlib.Path(__file__).resolve().parent
P = "parallelism."
AXES = {
    "none": [P + "sharding=none"],
    "optimizer": [P + "sharding=optimizer"],
    "ep_aware": [P + "sharding=ep_aware"],
    "experts": [P + "expert_parallel_degree={n}", "moe.dispatch=allgather"],
    "experts-all-to-all": [P + "expert_parallel_degree={n}", "moe.dispatch=all_to_all"],
    "tensor": [P + "tensor_parallel_degree={n}"],
    "sequence": [P + "tensor_parallel_degree={n}", P + "sequence_parallel=true"],
    "pipeline": [P + "pipeline_parallel_degree={n}"],
    "tree-sums": [P + "device_sums=tree"],
}
OF_FOUR = {
    "hierarchical": [P + "sharding=hierarchical", P + "data_parallel_replicate_degree=2"],
    "experts-twice": [P + "expert_parallel_degree=2", "moe.dispatch=all_to_all", P + "sharding=ep_aware"],
    "experts-2d": [P + "expert_parallel_degree=4", "moe.dispatch=all_to_all_2d", "topology.ranks_per_node=2"],
    "tensor-pipeline": [P + "tensor_parallel_degree=2", P + "pipeline_parallel_degree=2"],
    "tensor-experts": [P + "tensor_parallel_degree=2", P + "expert_parallel_degree=2"],
}
MOST_RANKS = 4  # the small model has no more to share
STEPS = 6


def layouts(gpus):
    """{name: (ranks, settings)}"""
    found = {}
    for ranks in sorted({2, min(gpus, MOST_RANKS) // 2 * 2}):
        for name, settings in AXES.items():
            found[f"{name}-{ranks}"] = ranks, [setting.format(n=ranks) for setting in settings]
    if gpus >= 4:
        found |= {name: (4, settings) for name, settings in OF_FOUR.items()}
    return found


def on_ranks(machine, clock, count, words, log):
    return machine.check_call([sys.executable, HERE / "ranks.py", count, *words], clock, log)


def train(machine, clock, folder, run, ranks, settings, log, steps=STEPS):
    values = [f"data.path={folder / 'data'}", f"train.run_dir={folder / run}", f"train.steps={steps}", "optimizer.schedule=constant",
              "optimizer.warmup_steps=2", *settings]
    words = [machine.main_program(), "train", folder / "run.toml", *[word for value in values for word in ("--set", value)]]
    if ranks == 1:
        machine.check_call(words, clock, log)
    else:
        on_ranks(machine, clock, ranks, words, log)


def need_gpus(machine):
    if machine.gpus < 2:
        raise Skipped("one GPU was given (--gpus)")


def verify(machine, clock):
    """`athanor verify` on one GPU, and on several with the experts divided among them."""
    words = [machine.main_program(), "verify", machine.root / "recipes" / "olmoe-tiny.toml", "--set",
             f"train.device={machine.several_device()}"]
    said = [machine.check_call(words, clock, "verify-1")]
    if machine.gpus > 1:
        ranks = min(machine.gpus, MOST_RANKS) // 2 * 2
        said.append(on_ranks(machine, clock, ranks, [*words, "--set", f"{P}expert_parallel_degree={ranks}"], f"verify-{ranks}"))
    return "; ".join(each.strip().split("\n")[-1] for each in said), {}


def check_layouts(machine, clock):
    need_gpus(machine)
    folder = machine.out / "layouts"
    checkpoint_round.prepare(machine, clock, folder)
    model = ["model.num_hidden_layers=4", "train.global_batch_size=8", "train.micro_batch_size=1", "checkpoint.interval=0",
             "checkpoint.model_interval=0"]
    train(machine, clock, folder, "cpu", 1, [*model, "train.device=cpu"], "layouts-cpu")
    expected, worst, wrong = checkpoint_round.losses(folder, "cpu"), {}, []
    for name, (ranks, settings) in layouts(machine.gpus).items():
        try:
            train(machine, clock, folder, name, ranks, [*model, f"train.device={machine.several_device()}", *settings], f"layouts-{name}")
            found = checkpoint_round.losses(folder, name)
            worst[name] = max(abs(a - b) / abs(a) for a, b in zip(expected, found, strict=True))
        except (Failed, ValueError) as failure:
            wrong.append(f"{name}: {failure}")
    # The bound of checkpoint_round.run, for the same model and fewer steps.
    wrong += [f"{name}: losses differ by {each:.1e}" for name, each in worst.items() if not each <= 1e-4]
    if wrong:
        raise Failed(f"{len(wrong)} of {len(layouts(machine.gpus))} layouts: {'; '.join(wrong[:3])}")
    return f"{len(worst)} layouts: losses within {max(worst.values()):.1e} of a run on the CPU", {"differences": worst}


class Speeds:
    """Steps of a model of about 1 billion parameters that compute, in bf16, on some of the GPUs."""

    def __init__(self, machine, clock, name, recipe, settings):
        need_gpus(machine)
        if machine.device != "cuda":
            raise Skipped("speed is measured on GPUs only")
        self.machine, self.clock, self.name, self.recipe = machine, clock, name, recipe
        self.folder = machine.out / name
        checkpoint_round.prepare(machine, clock, self.folder, seq_len=2048)
        self.settings = ["data.seq_len=2048", "model.max_position_embeddings=2048", "train.micro_batch_size=2", "checkpoint.interval=0",
                         "checkpoint.model_interval=0", "train.dtype=bfloat16", "train.device=cuda", "train.validation_interval=0", *settings]

    def step(self, run, ranks, *settings):
        """(median seconds of a step, the last line of metrics.jsonl), with four sequences for each rank in a step."""
        path = self.machine.root / "recipes" / self.recipe
        (self.folder / "run.toml").write_text(path.read_text())
        train(self.machine, self.clock, self.folder, run, ranks, [*self.settings, f"train.global_batch_size={4 * ranks}", *settings],
              f"{self.name}-{run}", steps=16)
        lines = checkpoint_round.metrics(self.folder, run)
        return statistics.median(line["step_s"] for line in lines[6:]), lines[-1]


def data_parallel(machine, clock):
    n = machine.gpus
    speeds = Speeds(machine, clock, "data-parallel", "olmo-1b.toml", [])
    alone, _ = speeds.step("one", 1)
    together, line = speeds.step("all", n)
    along_tree, _ = speeds.step("tree", n, P + "device_sums=tree")
    figures = {"ranks": n, "of_linear": alone / together, "reduced_in_backward": line.get("reduced_in_backward"),
               "tree_sums": along_tree / together}
    return f"{alone / together:.3f} of linear at {n} GPUs; {along_tree / together:.2f} times the time with sums along the tree", figures


def expert_parallel(machine, clock):
    n = machine.gpus
    speeds = Speeds(machine, clock, "expert-parallel", "olmoe-1b-7b.toml", ["model.num_hidden_layers=8", f"{P}expert_parallel_degree={n}"])
    times = {kind: speeds.step(kind, n, f"moe.dispatch={kind}")[0] for kind in ("allgather", "all_to_all")}
    ratio = times["allgather"] / times["all_to_all"]
    return f"all_to_all is {ratio:.2f} times as fast as allgather at E = {n}", {"ranks": n, "ratio": ratio, **times}


def model_parallel(machine, clock):
    n = machine.gpus
    speeds = Speeds(machine, clock, "model-parallel", "olmo-1b.toml", [])
    alone, _ = speeds.step("one", 1)
    shares = {"tensor": speeds.step("tensor", n, f"{P}tensor_parallel_degree={n}", P + "sequence_parallel=true")[0],
              "pipeline": speeds.step("pipeline", n, f"{P}pipeline_parallel_degree={n}", "train.micro_batch_size=1")[0]}
    # n ranks compute n times the sequences of one.
    shares = {axis: alone / seconds for axis, seconds in shares.items()}
    return ", ".join(f"{axis} {share:.3f}" for axis, share in shares.items()) + f" of linear at {n} GPUs", {"ranks": n, **shares}
