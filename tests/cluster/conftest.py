"""A cluster of virtual hosts with a Slurm, where this machine can have one; else its tests are skipped with the reason."""
import json
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop"), str(HERE.parent / "mpi")]
import hosts as hosts_module  # noqa: E402
import slurm as slurm_module  # noqa: E402
from runs import CONFIG, make_data  # noqa: E402
from test_runs import Athanor  # noqa: E402

ROOT = HERE.parents[1]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == HERE:
            for marker in ("mpi", "alone", "slow"):
                item.add_marker(marker)


@pytest.fixture(scope="session")
def program():
    return pathlib.Path(os.environ.get("ATHANOR_BIN", ROOT / "build" / "athanor")).resolve()


@pytest.fixture(scope="session")
def data(program, tmp_path_factory):
    return make_data(Athanor(program), tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def hosts(tmp_path_factory):
    if why := hosts_module.missing():
        pytest.skip(why)
    with hosts_module.Hosts(2, tmp_path_factory.mktemp("cluster")) as two:
        yield two


@pytest.fixture(scope="session")
def slurm(hosts):
    if why := slurm_module.missing():
        pytest.skip(why)
    with slurm_module.Slurm(hosts) as cluster:
        yield cluster


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


ENDLESS = ["train.steps=100000", "checkpoint.interval=100000", "checkpoint.model_interval=0", "train.validation_interval=0",
           "optimizer.schedule=constant"]


@pytest.fixture
def run(tmp_path, data):
    return ClusterRun(tmp_path, data)


@pytest.fixture
def long_steps(tmp_path, data):
    return ClusterRun(tmp_path, data, seconds_for_a_step=5)
