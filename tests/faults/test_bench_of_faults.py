"""A few cells of the bench of faults (cells.py): `athanor launch` ends, names no wrong host, and the weights are those of a run without faults.

`make faults` plays all of them.
"""
import concurrent.futures

import pytest
from cells import CELLS, PHASES

SHORT = ["SIGKILL-forward", "SIGTERM-save", "NaN_in_an_activation-forward", "failing_write-save", "lost_node-forward-PBS"]
SLOW = ["exception-update", "hang_before_a_collective-collective"]
# Open MPI takes some twenty seconds to notice it: this one is played on separate hosts while the others run.
LONG = "lost_node-forward-PBS"


def cell_of(name):
    (cell,) = [cell for cell in CELLS if cell.name == name]
    return cell


@pytest.fixture(scope="session")
def long_outcome(request, new_bench):
    """What becomes of the long cell, as a future, or None if no test asks for it."""
    if not any(getattr(item, "callspec", None) and item.callspec.params.get("name") == LONG for item in request.session.items):
        yield None
        return
    with concurrent.futures.ThreadPoolExecutor() as pool, new_bench() as played:
        yield pool.submit(played.play, cell_of(LONG))


@pytest.mark.parametrize("name", [*SHORT, *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)])
def test_a_fault_ends_in_a_completed_run_and_no_wrong_host_is_named(bench, long_outcome, name):
    outcome = long_outcome.result() if name == LONG else bench.play(cell_of(name))
    assert not outcome.wrong, "\n".join([*outcome.wrong, outcome.run.said()[-4000:]])


def test_each_fault_of_the_bench_is_played_in_each_phase_or_it_is_told_why_not():
    from cells import IMPOSSIBLE
    for fault in {cell.fault for cell in CELLS if not cell.is_lost_host}:
        played = {cell.phase for cell in CELLS if cell.fault == fault}
        assert played == set(PHASES) or fault in IMPOSSIBLE, fault
