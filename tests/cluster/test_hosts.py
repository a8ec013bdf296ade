"""Trainings of `mpirun` over two virtual hosts, without a scheduler."""
from cluster_runs import ClusterRun
from test_two_levels import results

def train(hosts, program, run, where):
    """Trains on four ranks; returns the log."""
    words = ["mpirun", *hosts.mpirun_options(), "-wdir", run.home, "-H", where, "-n", "4", program, "train", run.config]
    done = hosts.run("node1", words, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_ranks_on_two_hosts_train_to_the_bits_of_one_host(hosts, program, data, tmp_path):
    runs = {}
    for name, where in {"one": "node1:4", "two": "node1:2,node2:2"}.items():
        (tmp_path / name).mkdir()
        runs[name] = ClusterRun(tmp_path / name, data)
        said = train(hosts, program, runs[name], where)
    assert "4 ranks on 2 hosts: node1 (0 to 1), node2 (2 to 3)" in said
    figures, pieces = results(runs["two"].folder)
    assert len(figures) == 8 and len(pieces) > 1 and all(pieces)
    assert (figures, pieces) == results(runs["one"].folder)


def test_a_host_with_another_cpu_is_named(hosts, program, run):
    other = run.home / "cpuinfo"
    other.write_text("processor\t: 0\nmodel name\t: Slow Processor 7\n")
    hosts.check("node2", f"mount --bind {other} /proc/cpuinfo")
    try:
        said = train(hosts, program, run, "node1:2,node2:2")
    finally:
        hosts.check("node2", "umount /proc/cpuinfo")
    assert "2 ranks have other CPUs than the first rank, and each step waits for the slowest: node2 (2 to 3): Slow Processor 7" in said, said
    assert said.count("Slow Processor 7") == 1
