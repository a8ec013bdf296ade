"""A few cells of the bench of faults (cells.py): `athanor launch` ends, names no wrong host, and the weights are those of a run without faults.

`make faults` plays all of them.
"""
import pytest
from cells import CELLS, PHASES

SHORT = ["exception-update", "SIGKILL-forward", "SIGTERM-save", "hang_before_a_collective-collective", "NaN_in_an_activation-forward",
         "failing_write-save", "lost_node-forward-PBS"]


@pytest.mark.parametrize("name", SHORT)
def test_a_fault_ends_in_a_completed_run_and_no_wrong_host_is_named(bench, name):
    (cell,) = [cell for cell in CELLS if cell.name == name]
    outcome = bench.play(cell)
    assert not outcome.wrong, "\n".join([*outcome.wrong, outcome.run.said()[-4000:]])


def test_each_fault_of_the_bench_is_played_in_each_phase_or_it_is_told_why_not():
    from cells import IMPOSSIBLE
    for fault in {cell.fault for cell in CELLS if not cell.is_lost_host}:
        played = {cell.phase for cell in CELLS if cell.fault == fault}
        assert played == set(PHASES) or fault in IMPOSSIBLE, fault
