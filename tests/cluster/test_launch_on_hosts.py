"""`athanor launch` over two virtual hosts: with a host file by mpirun, and in jobs of a real Slurm by srun."""
import os

from cluster_runs import ENDLESS
from test_slurm import options, output, until_over, until_steps


def launch_from_node1(hosts, program, run, *words, env=None):
    variables = {**(env or {}), "OMPI_MCA_plm_rsh_agent": hosts.agent, "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_oob_tcp_if_include": "10.91.0.0/24", "OMPI_MCA_btl_tcp_if_include": "10.91.0.0/24"}
    return hosts.run("node1", ["env", "-C", run.home, program, "launch", *words], timeout=120, env={**os.environ, **variables})


def test_a_host_file_starts_ranks_on_both_hosts(hosts, program, run):
    (run.home / "hosts").write_text("node1 slots=2\nnode2 slots=2\n")
    done = launch_from_node1(hosts, program, run, "--hostfile", "hosts", "--", program, "train", "run.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 ranks on 2 hosts: node1 (0 to 1), node2 (2 to 3)" in done.stderr, done.stderr
    assert run.steps() == list(range(1, 9))


def test_without_a_spare_it_continues_on_fewer_hosts_with_the_same_data(hosts, program, run):
    (run.home / "hosts").write_text("node1 slots=2\nnode2 slots=2\n")
    run.config.write_text(run.config.read_text() + """
[[faults.plan]]
kind = "nan"
step = 5
host = "node2"
phase = "forward"
steps = 3
""")
    done = launch_from_node1(hosts, program, run, "--hostfile", "hosts", "--auto-retry", "--min-nodes", 1, "--", program, "train", "run.toml",
                             env={"ATHANOR_ALLOW_FAULTS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "without node2 and with no spare left, it continues on 1 of 2 nodes" in done.stderr, done.stderr
    assert sorted(set(run.steps())) == list(range(1, 9)), run.steps()
    assert [(run.folder / f"attempts/00{i}/hosts").read_text().split() for i in (1, 2)] == [["node1", "node2"], ["node1"]]


def submit_launch(slurm, program, run, script, *words):
    path = run.home / "athanor.sbatch"
    path.write_text(script)
    return slurm("sbatch", "--parsable", f"--chdir={run.home}", *words, path,
                 env={"PATH": f"{program.parent}:{slurm.environment['PATH']}", "OMPI_MCA_mpi_yield_when_idle": "1"})


def test_the_printed_script_trains_on_the_nodes_of_a_job(slurm, hosts, program, run):
    printed = hosts.run("head", [program, "launch", "--print-script", "slurm", "--nodes", 2, "--ppn", 2, "--", "athanor", "train", "run.toml"])
    job = submit_launch(slurm, program, run, printed.stdout)
    state = until_over(slurm, run, job)
    said = output(run)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), said
    assert "starts 4 ranks on 2 hosts: node1, node2 (Slurm)" in said, said
    assert f"Slurm job {job}: 4 ranks on 2 hosts: node1 (0 to 1), node2 (2 to 3)" in said, said
    assert run.steps() == list(range(1, 9)) and f"job {job}: the run is complete" in said, said


def test_sigterm_to_launch_saves_though_it_would_make_srun_kill_the_ranks(slurm, program, long_steps):
    run = long_steps
    job = submit_launch(slurm, program, run, "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --exclusive\n#SBATCH --output=athanor-%j.log\n"
                        f"exec athanor launch --ppn 2 -- athanor train run.toml {options(*ENDLESS)}\n")
    until_steps(slurm, run, 1)
    slurm("scancel", "--batch", "--signal=TERM", str(job))
    state = until_over(slurm, run, job)
    assert state["ExitCode"] == "130:0", output(run)
    assert run.saved() == [f"step-{run.steps()[-1]:08}"], output(run)
