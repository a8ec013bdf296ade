"""What all Python tests share: the markers, and the environment of the programs that they start.

`make test` runs the tests without a marker at the same time, on as many cores as there are, then those marked `mpi`, then those
marked `alone` one after the other. `make test-all` also runs those marked `slow`. Each test's processor time goes into the results
as `cpu_s`, with the processes that it waited for, and `scripts/test_summary` compares it with budgets.
"""
import os
import resource
import signal

import pytest

# Tests compare bits of one run with another's: both are to multiply by one path, not by what measures faster at the moment.
os.environ.setdefault("ATHANOR_MATMUL", "default")

# Tests run at the same time as other tests, and threads that spin while they wait take the core of another test.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# What tests compare with was computed on a CPU, and a run of one rank takes a GPU if it sees one.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

# With these set pytest writes whole differences, which takes 20 minutes for a list of a million numbers.
for name in ("CI", "BUILD_NUMBER"):
    os.environ.pop(name, None)

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


def processor_seconds():
    """The time of this process and of those that it waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    if item.get_closest_marker("slow"):
        item.user_properties.append(("slow", True))
    begin = processor_seconds()
    try:
        return (yield)
    finally:  # fixtures count for their room; it is chance which test makes what several share
        item.user_properties.append(("setup_cpu_s", round(processor_seconds() - begin, 3)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    begin = processor_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu_s", round(processor_seconds() - begin, 3)))
