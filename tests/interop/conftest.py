"""Where our programs and the shared data are.

ATHANOR_BIN     the program, default build/athanor; helper programs are in the same folder
ATHANOR_SHARED  data of others, default ../shared next to the project; tests that need it skip without it
"""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


# A small process between these tests and the program: the kernel lets a child's peak begin with its parent's memory, and
# the memory of these tests, with torch in it, is large.
MEASURE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(code)
"""


class Program:
    """One of our executables."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def run(self, *arguments, check=True, timeout=300, **options):
        """Runs it; returns the CompletedProcess with text output. With check, a failure shows the program's output."""
        command = [str(self.path), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)
        if check and done.returncode != 0:
            pytest.fail(f"{' '.join(command)}\nexited with {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return done

    def measure(self, *arguments):
        """Runs it; returns its output and its peak memory in bytes, as the kernel measured it."""
        command = [sys.executable, "-c", MEASURE, str(self.path), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        output, _, peak = done.stdout.rstrip().rpartition("\n")
        return output, int(peak)


def find_program(name):
    main = pathlib.Path(os.environ.get("ATHANOR_BIN", ROOT / "build" / "athanor")).resolve()
    path = main.with_name(name)
    if not path.exists():
        pytest.fail(f"{path} is not there: run `make build`, or set ATHANOR_BIN")
    return Program(path)


@pytest.fixture(scope="session")
def athanor():
    """The program that people run."""
    return find_program("athanor")


@pytest.fixture(scope="session")
def athanor_parity():
    """Runs a model folder over tokens and writes logits, losses and gradients (tests/support/parity.cpp)."""
    return find_program("athanor_parity")


@pytest.fixture(scope="session")
def shared():
    """The folder of shared data."""
    path = pathlib.Path(os.environ.get("ATHANOR_SHARED", ROOT.parent / "shared"))
    if not (path / "data").is_dir():
        pytest.skip(f"no shared data in {path}; set ATHANOR_SHARED")
    return path
