"""`athanor yeet` between virtual hosts, each with its own /mnt: over mpirun, in a job of Slurm, and over a link that is slowed down."""
import json
import os
import random
import subprocess

import pytest
from test_launch_on_hosts import launch_from_node1, submit_launch
from test_slurm import output, until_over

LINK_MB_S = 40  # megabytes, not megabits
FILE_MB = 60


@pytest.fixture
def source(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/data").write_bytes(random.Random(1).randbytes(3 << 20))
    return tmp_path / "src"


def clean(hosts):
    for name in hosts.names:
        hosts.check(name, "rm -rf /mnt/*")


def test_each_host_has_the_files_on_its_own_disk(hosts, program, run, source):
    clean(hosts)
    (run.home / "hosts").write_text("node1 slots=1\nnode2 slots=1\n")
    done = launch_from_node1(hosts, program, run, "--hostfile", "hosts", "--", program, "yeet", source, "--to", "/mnt/run", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line["host"] for line in json.loads(done.stdout)["by_node"]] == ["node1", "node2"]
    for name in hosts.names:
        hosts.check(name, f"cmp {source}/data /mnt/run/src/data")


def test_a_host_whose_disk_has_no_room_is_named_before_anything_is_sent(hosts, program, run, source):
    clean(hosts)
    hosts.check("node2", "mkdir /mnt/small && mount -t tmpfs -o size=1m tmpfs /mnt/small")
    try:
        (run.home / "hosts").write_text("node1 slots=1\nnode2 slots=1\n")
        done = launch_from_node1(hosts, program, run, "--hostfile", "hosts", "--", program, "yeet", source, "--to", "/mnt/small")
        assert done.returncode == 2 and "node2: /mnt/small has room for" in done.stderr, done.stdout + done.stderr
        hosts.check("node1", "test ! -e /mnt/small/src")
    finally:
        hosts.check("node2", "umount /mnt/small")


def test_in_a_job_it_starts_itself_on_all_nodes(slurm, hosts, program, run, source):
    clean(hosts)
    job = submit_launch(slurm, program, run, "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --exclusive\n#SBATCH --output=athanor-%j.log\n"
                        f"exec athanor yeet {source} --to /mnt/run\n")
    state = until_over(slurm, run, job)
    said = output(run)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), said
    assert "on 2 nodes: sent" in said, said
    for name in hosts.names:
        hosts.check(name, f"cmp {source}/data /mnt/run/src/data")


def test_over_a_link_that_is_slowed_down_the_formula_is_within_15_percent(hosts, program, run, tmp_path):
    shaped = hosts.run("node1", ["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{LINK_MB_S * 8}mbit", "burst", "64kb", "latency", "400ms"])
    if shaped.returncode != 0:
        pytest.skip(f"this kernel has no tbf: {shaped.stderr.strip()}")
    try:
        clean(hosts)
        (tmp_path / "file").write_bytes(os.urandom(FILE_MB * 10**6))
        (run.home / "hosts").write_text("node1 slots=1\nnode2 slots=1\n")
        done = launch_from_node1(hosts, program, run, "--hostfile", "hosts", "--", program, "yeet", tmp_path / "file", "--to", "/mnt/run", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        hosts.check("node1", "tc qdisc del dev eth0 root")
    measured = json.loads(done.stdout)["seconds"]
    said = subprocess.run([program, "yeet", "--predict", "2", "--bytes", str(FILE_MB * 10**6), "--link", str(LINK_MB_S), "--json"],
                          capture_output=True, text=True, check=True).stdout
    predicted = json.loads(said)["prediction"][0]["seconds"]
    print(f"measured {measured:.3f} s, predicted {predicted:.3f} s")
    assert abs(predicted / measured - 1) < 0.15, (predicted, measured)
