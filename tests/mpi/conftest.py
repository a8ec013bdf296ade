"""Where the programs are (ATHANOR_BIN, default build/athanor; others are in the same folder), and the MPIs of this machine."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import launchers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ["Open MPI", "MPICH"]


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == pathlib.Path(__file__).parent:
            item.add_marker("mpi")
            item.add_marker("alone")


@pytest.fixture(scope="session")
def program():
    """Returns a function from the name of one of our programs to its path."""
    main = pathlib.Path(os.environ.get("ATHANOR_BIN", ROOT / "build" / "athanor")).resolve()

    def find(name):
        path = main.with_name(name)
        if not path.exists():
            pytest.fail(f"{path} is not there: run `make build`, or set ATHANOR_BIN")
        return path

    return find


@pytest.fixture(params=KINDS, ids=["openmpi", "mpich"])
def mpi(request, program):
    """Each MPI in turn."""
    launcher = launchers.find(request.param)
    if launcher is None:
        pytest.skip(f"no mpirun of {request.param} on the PATH")
    library = launchers.plugin(program("athanor"), request.param)
    if not library.exists():
        pytest.skip(f"{library.name} was not built: no {request.param} headers when CMake ran")
    return launcher
