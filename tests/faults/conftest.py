"""The bench of faults needs virtual hosts (tests/cluster/hosts.py); where this machine cannot have them, its tests are skipped with the reason."""
import contextlib
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("cluster", "interop", "mpi"))]
import bench as bench_module  # noqa: E402
import hosts as hosts_module  # noqa: E402
from run_bench import Bench  # noqa: E402


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == HERE:
            for marker in ("mpi", "alone", "faults"):
                item.add_marker(marker)


@pytest.fixture(scope="session")
def new_bench():
    """Returns a function that gives a bench with separate hosts, for `with`."""
    if why := hosts_module.missing() or bench_module.missing():
        pytest.skip(why)
    program = pathlib.Path(os.environ.get("ATHANOR_BIN", bench_module.ROOT / "build" / "athanor")).resolve()

    @contextlib.contextmanager
    def start():
        folder = tempfile.mkdtemp(prefix="fb-", dir="/tmp")  # Open MPI's sockets need short paths
        with Bench(program, folder) as played:
            yield played
        shutil.rmtree(folder)

    return start


@pytest.fixture(scope="session")
def bench(new_bench):
    with new_bench() as played:
        yield played
