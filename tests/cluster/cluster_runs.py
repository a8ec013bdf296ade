"""Runs on a cluster: their configuration and what their folders hold."""
import json
import pathlib

from runs import CONFIG

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENDLESS = ["train.steps=100000", "checkpoint.interval=100000", "checkpoint.model_interval=0", "train.validation_interval=0",
           "optimizer.schedule=constant"]


class ClusterRun:
    """A configuration with its run folder, both in the folder from which a job is submitted."""

    def __init__(self, home, data, seconds_for_a_step=0):
        self.home, self.folder, self.config = home, home / "run", home / "run.toml"
        text = CONFIG.format(family="olmoe", experts=8, topk=2, data=data, run="run").replace("micro_batch_size = 2", "micro_batch_size = 1")
        if seconds_for_a_step:  # about 4,000 sequences of this model take four ranks on two cores five seconds
            text = text.replace("global_batch_size = 4", f"global_batch_size = {4 * round(200 * seconds_for_a_step)}")
        text = text.replace("steps = 8", "steps = 8\ndtype = \"float32\"")
        self.config.write_text(text)

    def steps(self):
        path = self.folder / "metrics.jsonl"
        return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []

    def events(self, *names):
        lines = [json.loads(line) for line in (self.folder / "events.jsonl").read_text().splitlines()]
        return [line for line in lines if line["event"] in names]

    def saved(self):
        return sorted(path.name for path in (self.folder / "checkpoints").glob("step-*"))
