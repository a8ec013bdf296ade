"""What all Python tests share: the markers, and the environment of the programs that they start.

`make test` runs the tests without a marker at the same time, on as many cores as there are, then those marked `mpi` two at a
time, then those marked `alone` one after the other. `make test-all` also runs those marked `slow`.
"""
import os
import signal

# Tests compare bits of one run with another's: both are to multiply by one path, not by what measures faster at the moment.
os.environ.setdefault("ATHANOR_MATMUL", "default")

# Tests run at the same time as other tests, and threads that spin while they wait take the core of another test.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# What tests compare with was computed on a CPU, and a run of one rank takes a GPU if it sees one.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

# A shell without job control ignores this signal for what it runs in the background, and programs inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

MARKERS = {
    "slow": "is long and rarely fails; only `make test-all` runs it",
    "alone": "uses all cores or measures time; runs while no other test does",
    "mpi": "starts jobs of several ranks (tests/mpi)",
    "faults": "makes a run fail on purpose, by what [faults] in its configuration plans",
}


def pytest_configure(config):
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
