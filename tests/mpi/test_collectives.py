"""Compares every collective with its definition, under real MPI and without; messages move while the caller is elsewhere."""
import pytest

WITHOUT_MPI = [2, 5, 9]  # numbers of ranks: the algorithms were tested under MPI, and these have all kinds of messages
# Four run in ctest.
SHORT = {("Open MPI", 1), ("Open MPI", 3), ("MPICH", 2), ("MPICH", 5), ("torchrun", 2), ("torchrun", 5)}
# 16 once; primes, powers of two and their neighbours.
CASES = [pytest.param(kind, ranks, marks=[] if (kind, ranks) in SHORT else pytest.mark.slow)
         for kind in ("Open MPI", "MPICH", "torchrun") for ranks in (1, 2, 3, 4, 5, 8, 9)]


@pytest.mark.every_launcher
@pytest.mark.parametrize("launcher, ranks", CASES, indirect=["launcher"])
def test_every_collective_is_right(launcher, program, ranks):
    if launcher.name == "torchrun" and ranks not in WITHOUT_MPI:
        pytest.skip("other numbers of ranks run under MPI")
    code, out, err, _ = launcher.run(ranks, program("comm_ranks"), "collectives", timeout=300)
    assert code == 0, out + err
    if ranks > 1:
        assert f"right on {ranks} ranks" in out


@pytest.mark.slow
def test_every_collective_is_right_on_sixteen_ranks(mpi, program):
    if mpi.name != "Open MPI":
        pytest.skip("sixteen ranks run once, under Open MPI")
    code, out, err, _ = mpi.run(16, program("comm_ranks"), "collectives", timeout=300)
    assert code == 0 and "right on 16 ranks" in out, out + err


@pytest.mark.every_launcher
def test_messages_move_while_the_caller_is_elsewhere(launcher, program):
    code, out, err, _ = launcher.run(2, program("comm_ranks"), "overlap")
    assert code == 0 and "waited" in out, out + err
