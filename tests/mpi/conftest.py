"""Where the programs are (ATHANOR_BIN, default build/athanor; others are in the same folder), and the MPIs of this machine."""
import functools
import os
import pathlib
import sys
import zlib

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import launchers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = ["Open MPI", "MPICH"]
WITHOUT_MPI = "torchrun"


def pytest_configure(config):
    config.addinivalue_line("markers", "every_launcher: its claim depends on what starts the ranks; others take one launcher in turn")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent == pathlib.Path(__file__).parent:
            item.add_marker("mpi")
            if not is_launcher_in_turn(item):
                item.add_marker("slow")


def is_launcher_in_turn(item):
    """True for one launcher of each test, another for each name, so that every launcher starts a part of the jobs in `make test`."""
    for fixture, kinds in (("mpi", KINDS), ("launcher", [*KINDS, WITHOUT_MPI])):
        kind = item.callspec.params.get(fixture) if hasattr(item, "callspec") else None
        if kind in kinds and not item.get_closest_marker("every_launcher"):
            here = [each for each in kinds if is_here(each)] or kinds
            return kind == here[zlib.crc32(item.originalname.encode()) % len(here)]
    return True


@functools.cache
def is_here(kind):
    """True if this machine can start ranks in this way: a launcher that it lacks has no turn."""
    return launchers.find(kind) is not None


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
