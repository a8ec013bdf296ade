"""Compares every collective with its definition, under real MPI; messages move while the caller is not in MPI."""
import pytest


# 16 once; primes, powers of two and their neighbours.
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 9])
def test_every_collective_is_right(mpi, program, ranks):
    code, out, err, _ = mpi.run(ranks, program("comm_ranks"), "collectives", timeout=300)
    assert code == 0, out + err
    if ranks > 1:
        assert f"right on {ranks} ranks" in out


def test_every_collective_is_right_on_sixteen_ranks(mpi, program):
    if mpi.name != "Open MPI":
        pytest.skip("sixteen ranks run once, under Open MPI")
    code, out, err, _ = mpi.run(16, program("comm_ranks"), "collectives", timeout=300)
    assert code == 0 and "right on 16 ranks" in out, out + err


def test_messages_move_while_the_caller_is_elsewhere(mpi, program):
    code, out, err, _ = mpi.run(2, program("comm_ranks"), "overlap")
    assert code == 0 and "waited" in out, out + err
