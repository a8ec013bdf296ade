"""Where the programs are (ATHANOR_BIN, default build/athanor; others are in the same folder), and the MPIs of this machine."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import launchers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ["Open MPI", "MPICH"]
WITHOUT_MPI = "torchrun"
# They measure time, or play devices, whose streams take all cores. test_drawn_on_devices plays them too, but expects nothing within a
# time, so it computes while other jobs wait.
ALONE = {"test_bench_comm", "test_bench_checkpoint_ranks", "test_played_devices", "test_faults_on_devices"}


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == pathlib.Path(__file__).parent:
            item.add_marker("mpi")
            if item.path.stem in ALONE:
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


def launcher_of(kind, program):
    launcher = launchers.find(kind)
    if launcher is None:
        pytest.skip(f"no mpirun of {kind} on the PATH")
    library = launchers.plugin(program("athanor"), kind)
    if not library.exists():
        pytest.skip(f"{library.name} was not built: no {kind} headers when CMake ran")
    return launcher


@pytest.fixture(params=KINDS, ids=["openmpi", "mpich"])
def mpi(request, program):
    """Each MPI in turn."""
    return launcher_of(request.param, program)


@pytest.fixture(params=[*KINDS, WITHOUT_MPI], ids=["openmpi", "mpich", "torchrun"])
def launcher(request, program):
    """Each MPI in turn, and no MPI."""
    return launcher_of(request.param, program)


@pytest.fixture(scope="module")
def any_launcher(program):
    """The first of them that is there: for tests of what does not depend on it."""
    return next(found for kind in (*KINDS, WITHOUT_MPI) if (found := launchers.find(kind)) and launchers.plugin(program("athanor"), kind).exists())


@pytest.fixture
def torchrun(program):
    return launcher_of(WITHOUT_MPI, program)


@pytest.fixture
def torchrun_with_agent(program):
    return launchers.TorchrunLike(agent=program("comm_ranks"))
