"""The parts of gpu_check that measure. Every figure comes with limits of the same GPU in the same run."""
import json
import pathlib
import re
import statistics
import sys

import shapes
from running import Failed, Skipped, how_it_ended, last_line, read_report

HERE = pathlib.Path(__file__).resolve().parent
OUT_OF_MEMORY, REFUSED = 79, 2
TURNS, ROUNDS, STEPS = 2, 4, 4


def need_gpu(machine):
    if machine.device != "cuda":
        raise Skipped("speed is measured on a GPU only")


def kernels(machine, clock):
    need_gpu(machine)
    code, output = machine.call([machine.program("kernels_cuda_bench")], clock, "kernel-speed")
    shares = kernel_shares(output)
    if code != 0 or not shares:
        raise Failed(f"kernels_cuda_bench {how_it_ended(code)}: {last_line(output)}; see kernel-speed.log")
    slowest = sorted(shares, key=shares.get)[:3]
    return "slowest: " + ", ".join(f"{name} {shares[name]:.2f}" for name in slowest) + " of the copy rate", {"shares": shares}


def optimizers(machine, clock):
    need_gpu(machine)
    figures, texts = {}, []
    for name in ("lamb", "sophiag", "muon", "sgd"):
        path = machine.out / f"optimizer-{name}.json"
        path.unlink(missing_ok=True)
        output = machine.check_call([machine.program("athanor"), "bench", "optimizer", "--name", name, "--device", "cuda", "--dtype",
                                     "bfloat16", "--parameters", 268435456, "--json", path], clock, f"optimizer-{name}")
        figures[name] = read_report(path, "athanor bench optimizer", 0, output, f"optimizer-{name}")
        times = {entry["name"]: entry["median_s"] for entry in figures[name]}
        texts.append(f"{name} {times[name] / times['adamw']:.2f}")
    shares = [entry["limit_share"] for entry in figures["muon"] if entry["name"].startswith("muon,") and entry["limit_share"]]
    return f"times of AdamW's update: {', '.join(texts)}; Muon's products {min(shares):.2f} to {max(shares):.2f} of the GEMM rate", figures


def kernel_shares(output):
    """The lines of kernels_cuda_bench: a name of at most 28 characters, milliseconds, GB/s, the share of the copy rate."""
    rows = re.findall(r"^(\S.{0,27}?)\s+([\d.]+)\s+(\d+)\s+([\d.]+)(?:\s|$)", output, re.MULTILINE)
    return {name: float(share) for name, _, _, share in rows}


def attention(machine, clock):
    need_gpu(machine)
    code, output = machine.call([sys.executable, HERE / "attention_cost.py"], clock, "attention")
    if code != 0:
        raise Skipped(f"this Python has no torch that computes on the GPU: {last_line(output)}")
    if not (times := figures_of(output)):
        raise Failed(f"attention_cost.py printed no figures: {last_line(output)}; see attention.log")
    cost = times["deterministic_ms"] / times["ms"]
    return f"forward and backward take {cost:.2f} times as long in a fixed order ({times['deterministic_ms']:.2f} ms)", times


def figures_of(output):
    """The JSON object in the last line of an output; None if there is none."""
    try:
        figures = json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return figures if isinstance(figures, dict) else None


def by_name(results):
    return {entry["name"]: entry for entry in [results[0], *results[1:]]}  # an error if there are none


def block(machine, clock):
    need_gpu(machine)
    path = machine.out / "block.json"
    path.unlink(missing_ok=True)
    output = machine.check_call([machine.program("athanor"), "bench", "moe", "--device", "cuda", "--tokens", 4096, "--hidden", 2048, "--ffn",
                        1024, "--experts", 64, "--topk", 8, "--dtype", "bfloat16", "--json", path], clock, "block")
    summary, results = read_report(path, "athanor bench moe", 0, output, "block", lambda results: (summary_of_block(results[0]), results))
    return summary, {"results": results}


def summary_of_block(whole):
    return f"{whole['median_s'] * 1e3:.2f} ms, {whole['limit_share']:.2f} of the {whole['limit_is']}"


class Steps:
    """Steps of one shape by Athanor and by forms of `transformers`, in turns; each turn is a process, as two do not fit at once."""

    def __init__(self, machine, clock, name):
        self.machine, self.clock, self.name = machine, clock, name
        self.shape, self.mine, self.theirs = shapes.SHAPES[name], [], {}
        self.graphs, self.graphs_failure = None, ""

    def ours(self, batch, turn, graphs=False):
        """None if it does not fit."""
        path = self.machine.out / f"{self.name}-ours-{turn}.json"
        settings = [f"train.micro_batch_size={batch}", f"train.global_batch_size={batch}", f"data.seq_len={self.shape.seq_len}",
                    f"model.max_position_embeddings={self.shape.seq_len}", "train.device=cuda",
                    f"train.cuda_graphs={str(graphs).lower()}", *self.shape.settings]
        words = [word for setting in settings for word in ("--set", setting)]
        log = f"{self.name}-ours-{turn}"
        path.unlink(missing_ok=True)
        code, output = self.machine.call(
            [self.machine.program("athanor"), "bench", "step", self.machine.root / "recipes" / self.shape.recipe, *words,
             "--no-recompute", "--rounds", ROUNDS, "--json", path], self.clock, log)
        if code == OUT_OF_MEMORY or (code == REFUSED and "are free there" in output):
            return None
        if code != 0:
            raise Failed(f"athanor bench step {how_it_ended(code)}: {last_line(output)}; see {log}.log")
        if graphs and "cannot be recorded" in output:
            raise Failed("the step cannot be recorded; see " + log + ".log")
        return read_report(path, "athanor bench step", code, output, log, by_name)

    def peer(self, form, batches, turn):
        """None if there is no `transformers` here, or the form does not fit."""
        log = f"{self.name}-{form}-{turn}"
        try:
            code, output = self.call_peer(form, batches, log)
        except Failed:  # not over in time: what was measured before still counts
            return None
        return figures_of(output) if code == 0 else None

    def call_peer(self, form, batches, log):
        return self.machine.call([sys.executable, HERE / "peer_step.py", self.name, "--form", form, "--steps", STEPS,
                                  "--batches", ",".join(map(str, batches))], self.clock, log)

    def measure(self):
        batches = list(self.shape.batches)
        first = self.peer("grouped_mm", batches, 0)
        if first:
            batches = [batch for batch in batches if batch <= first["batch"]]
        while batches and not (mine := self.ours(batches[0], 0)):
            batches.pop(0)
        if not batches:
            raise Failed(f"out of memory with every batch of {self.shape.batches}")
        self.mine.append(mine)
        if first and first["batch"] != batches[0]:
            first = self.peer("grouped_mm", batches[:1], 0)
        if first:
            self.theirs["grouped_mm"] = [first]
            self.turns(batches[0])
        if self.clock.left_s() > 10:
            self.with_graphs(batches[0])
        if first and self.shape.experts and self.clock.left_s() > 20:
            if slow := self.peer("module_list", batches[:1], 0):
                self.theirs["module_list"] = [slow]
        return batches[0]

    def turns(self, batch):
        """More turns while there is time for a pair of them."""
        spent_s = self.clock.limit_s - self.clock.left_s()
        for turn in range(1, TURNS):
            if self.clock.left_s() < spent_s:
                return
            if again := self.peer("grouped_mm", [batch], turn):
                self.theirs["grouped_mm"].append(again)
            if again := self.ours(batch, turn):
                self.mine.append(again)

    def with_graphs(self, batch):
        """The same step as one launch of a recorded graph for each microbatch; a failure here costs no other figure."""
        try:
            self.graphs = self.ours(batch, "graphs", graphs=True)
        except Failed as failure:
            self.graphs_failure = str(failure)


def step(name):
    def run(machine, clock):
        need_gpu(machine)
        steps = Steps(machine, clock, name)
        batch = steps.measure()
        return summary_of(steps, batch)
    return run


def median(results, part):
    return statistics.median(each[part]["median_s"] for each in results if part in each)


def summary_of(steps, batch):
    whole = steps.mine[0]["step"]
    step_s = median(steps.mine, "step")
    # On a device the host does not know when forward ends: what the update takes is measured alone.
    products_s = step_s - median(steps.mine, "AdamW") - median(steps.mine, "gradient norm")
    peers = [each for form in steps.theirs.values() for each in form]
    work = shapes.step_work(steps.shape, batch)
    # The GEMM rate that Athanor measures; copies as the peer measures them, in the same run.
    gemm_rate = max([whole["limit"]] + [each["gemm_rate"] for each in peers])
    copy_rates = [each["copy_rate"] for each in peers] + \
        [entry["limit"] for entry in steps.mine[0].values() if entry.get("limit_is") == "copy, read + written"]
    figures = {"batch": batch, "seq_len": steps.shape.seq_len, "step_s": step_s, "forward_and_backward_s": products_s,
               "tokens_per_s": batch * steps.shape.seq_len / step_s, "gemm_rate": gemm_rate,
               "of_gemm_rate": shapes.flops(work) / step_s / gemm_rate, "launches": whole.get("launches"), "waits": whole.get("device_waits"),
               "kernels": whole.get("kernels"), "device_bytes": whole.get("device_bytes"), "ratios": {}}
    text = f"{step_s * 1e3:.0f} ms a step of {batch} x {steps.shape.seq_len}, {figures['of_gemm_rate']:.2f} of the GEMM rate"
    if copy_rates:
        figures["copy_rate"] = max(copy_rates)
        figures["of_roofline"] = shapes.roofline_s(work, gemm_rate, figures["copy_rate"]) / step_s
        text += f", {figures['of_roofline']:.2f} of the roofline"
    if steps.graphs:
        figures["with_graphs_s"] = steps.graphs["step"]["median_s"]
        text += f"; {step_s / figures['with_graphs_s']:.2f} times as fast with train.cuda_graphs"
    elif steps.graphs_failure:
        text += f"; train.cuda_graphs failed: {steps.graphs_failure}"
    for form, turns in steps.theirs.items():
        theirs = statistics.median(each["step_s"] for each in turns)
        halves = statistics.median(each["backward_and_forward_s"] for each in turns)
        figures["ratios"][form] = {"step": theirs / step_s, "forward_and_backward": halves / products_s}
        text += f"; {theirs / step_s:.2f} times as fast as {form} ({halves / products_s:.2f} without the update)"
    return text, figures
