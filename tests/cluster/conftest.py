"""A cluster of virtual hosts with a Slurm, where this machine can have one; else its tests are skipped with the reason."""
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "interop"), str(HERE.parent / "mpi")]
import hosts as hosts_module  # noqa: E402
import slurm as slurm_module  # noqa: E402
from cluster_runs import ClusterRun  # noqa: E402
from runs import make_data  # noqa: E402
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


@pytest.fixture
def run(tmp_path, data):
    return ClusterRun(tmp_path, data)


@pytest.fixture
def long_steps(tmp_path, data):
    return ClusterRun(tmp_path, data, seconds_for_a_step=5)
