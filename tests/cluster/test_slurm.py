"""The job scripts of examples/slurm as they stand, and what srun does with signals, under a real Slurm on two virtual hosts."""
import re
import time

import pytest

from cluster_runs import ENDLESS, ROOT

SCRIPT = ROOT / "examples" / "slurm" / "cpu.sbatch"


def options(*overrides):
    return " ".join(f"--set {each}" for each in overrides)


def submit(slurm, program, run, *words, overrides=(), script=SCRIPT, launch=None):
    """Submits the script from the folder of the run; returns the number of the job."""
    variables = {"ATHANOR": str(program), "CONFIG": "run.toml", "OPTIONS": options(*overrides), "OMPI_MCA_mpi_yield_when_idle": "1",
                 **({"LAUNCH": launch} if launch else {})}
    return slurm("sbatch", "--parsable", f"--chdir={run.home}", *words, script, env=variables)


def output(run):
    return "".join(path.read_text() for path in run.home.glob("athanor-*.log"))


def until_steps(slurm, run, num):
    slurm.wait(lambda: len(run.steps()) >= num, 90, lambda: output(run))


def until_over(slurm, run, job, seconds=120):
    slurm.wait(lambda: slurm.state(job).get("JobState") not in ("PENDING", "RUNNING", "COMPLETING"), seconds, lambda: output(run))
    return slurm.state(job)


def test_the_cpu_script_trains_on_two_hosts(slurm, program, run):
    job = submit(slurm, program, run)
    state = until_over(slurm, run, job)
    said = output(run)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), said
    assert run.steps() == list(range(1, 9)), said
    assert f"Slurm job {job}: 4 ranks on 2 hosts: node1 (0 to 1), node2 (2 to 3)" in said, said
    assert f"job {job}: the run is complete" in said


def test_near_its_time_limit_it_is_requeued_until_the_run_is_complete(slurm, program, long_steps):
    run = long_steps
    # Slurm's shortest limit is a minute, and its signals may come a minute early: one that does nothing replaces the script's.
    job = submit(slurm, program, run, "--time=1", "--signal=URG@1", overrides=[
        "train.steps=14", "checkpoint.interval=1000", "checkpoint.model_interval=0", "train.stop_margin=40s"])
    restarts = 0
    while (state := slurm.state(job))["JobState"] in ("PENDING", "RUNNING", "COMPLETING"):
        restarts = int(state["Restarts"])
        if state["JobState"] == "PENDING" and restarts and state["Reason"] == "BeginTime":
            time.sleep(3)  # the attempt before ends
            slurm("scontrol", "update", f"JobId={job}", "StartTime=now")  # Slurm would wait for two minutes
        assert restarts < 10, output(run)
        time.sleep(1)
    said = output(run)
    assert (state["JobState"], state["ExitCode"]) == ("COMPLETED", "0:0"), said
    assert restarts >= 1 and f"job {job}: saved; requeued to continue" in said
    assert f"stopped by the end of Slurm job {job}, less train.stop_margin (40s) after step" in said, said
    assert run.steps() == list(range(1, 15))
    ends = [line["exit_code"] for line in run.events("end")]
    assert ends == [10] * restarts + [0]
    assert len(run.events("resume")) == restarts


@pytest.mark.parametrize("launch", ["srun --mpi=pmix", "mpirun --allow-run-as-root"], ids=["srun", "mpirun"])
def test_scancel_with_usr1_finishes_the_step_saves_and_requeues(slurm, program, long_steps, launch):
    run = long_steps
    job = submit(slurm, program, run, overrides=ENDLESS, launch=launch)
    until_steps(slurm, run, 1)
    slurm("scancel", "--signal=USR1", job)
    slurm.wait(lambda: run.events("end"), 60, lambda: output(run))
    last = run.steps()[-1]
    assert run.events("end")[0]["exit_code"] == 10 and run.saved() == [f"step-{last:08}"]
    slurm.wait(lambda: slurm.state(job)["JobState"] == "PENDING", 60, lambda: output(run))
    slurm("scancel", job)
    assert f"stopped by SIGUSR1 after step {last}" in output(run)


def test_scancel_saves_and_nothing_is_requeued(slurm, program, long_steps):
    run = long_steps
    job = submit(slurm, program, run, overrides=ENDLESS)
    until_steps(slurm, run, 1)
    slurm("scancel", job)
    state = until_over(slurm, run, job)
    last = run.steps()[-1]
    assert state["JobState"] == "CANCELLED" and state["Restarts"] == "0"
    assert run.saved() == [f"step-{last:08}"], output(run)
    assert f"stopped by SIGTERM after step {last}" in output(run)


def start_srun(slurm, program, run, *words):
    said = open(run.home / "srun.log", "w", encoding="utf-8")
    overrides = [word for each in ENDLESS for word in ("--set", each)]
    return slurm.hosts.start("head", ["srun", "--mpi=pmix", f"--chdir={run.home}", "--nodes=2", "--ntasks=4", *words, program, "train", run.config, *overrides],
                             env={**slurm.environment, "OMPI_MCA_mpi_yield_when_idle": "1"}, stdout=said, stderr=said)


def srun_of(slurm, run):
    """Returns the process of srun that was started, which has a child that is called the same."""
    return slurm.hosts.check("head", f"pgrep --oldest --full '^srun .*{run.config}'")


def job_of_the_moment(slurm):
    return slurm("squeue", "--noheader", "--format=%i").split()[0]


SIGNALS = {
    "SIGUSR1 to srun": (10, "SIGUSR1", lambda slurm, run: slurm.hosts.check("head", f"kill -USR1 {srun_of(slurm, run)}")),
    "SIGUSR1 by scancel": (10, "SIGUSR1", lambda slurm, run: slurm("scancel", "--signal=USR1", job_of_the_moment(slurm))),
    "SIGTERM by scancel": (143, "SIGTERM", lambda slurm, run: slurm("scancel", "--signal=TERM", job_of_the_moment(slurm))),
    "SIGINT by scancel": (130, "SIGINT", lambda slurm, run: slurm("scancel", "--signal=INT", job_of_the_moment(slurm))),
    "SIGHUP by scancel": (129, "SIGHUP", lambda slurm, run: slurm("scancel", "--signal=HUP", job_of_the_moment(slurm))),
    "scancel": (143, "SIGTERM", lambda slurm, run: slurm("scancel", job_of_the_moment(slurm))),
    "SIGINT to srun --disable-status":
        (130, "SIGINT", lambda slurm, run: slurm.hosts.check("head", f"kill -INT {srun_of(slurm, run)}")),
}


@pytest.mark.parametrize("way", SIGNALS)
def test_srun_finishes_the_step_and_saves(slurm, program, long_steps, way):
    run, (code, name, send) = long_steps, SIGNALS[way]
    process = start_srun(slurm, program, run, *(["--disable-status"] if "disable" in way else []))
    until_steps(slurm, run, 1)
    time.sleep(1)  # within a step
    begun = len(run.steps())
    send(slurm, run)
    assert process.wait(60) == code, (run.home / "srun.log").read_text()
    last = run.steps()[-1]
    assert last == begun + 1 and run.saved() == [f"step-{last:08}"]
    assert f"stopped by {name} after step {last}" in (run.home / "srun.log").read_text()


SAVES = {
    "SIGUSR2 to srun": lambda slurm, run: slurm.hosts.check("head", f"kill -USR2 {srun_of(slurm, run)}"),
    "SIGUSR2 by scancel": lambda slurm, run: slurm("scancel", "--signal=USR2", job_of_the_moment(slurm)),
}


@pytest.mark.parametrize("way", SAVES)
def test_srun_saves_and_continues(slurm, program, long_steps, way):
    run = long_steps
    process = start_srun(slurm, program, run)
    until_steps(slurm, run, 1)
    SAVES[way](slurm, run)
    slurm.wait(run.saved, 60, lambda: (run.home / "srun.log").read_text())
    saved = len(run.steps())
    until_steps(slurm, run, saved + 1)
    slurm("scancel", "--signal=TERM", job_of_the_moment(slurm))
    assert process.wait(60) == 143, (run.home / "srun.log").read_text()
    assert len(run.saved()) == 2


def test_a_rank_that_is_killed_ends_the_job_and_is_named(slurm, program, long_steps, monkeypatch):
    run = long_steps
    monkeypatch.setitem(slurm.environment, "SLURM_WAIT", "3")  # the script has a minute
    # If the rank is alone on its node, Slurm itself tells the others nothing.
    job = submit(slurm, program, run, "--ntasks-per-node=1", overrides=ENDLESS)
    until_steps(slurm, run, 1)
    slurm.hosts.check("head", f"kill -KILL $(pgrep --newest --full '^{program} train')")
    state = until_over(slurm, run, job, 60)
    said = output(run)
    assert state["JobState"] == "FAILED" and state["ExitCode"] != "10:0", said
    assert re.search(r"srun: error: node\d: task \d: Killed", said), said
    assert "not requeued" in said


def test_the_gpu_script_does_not_train_on_cpus_instead(slurm, program, run):
    batch = ["train.global_batch_size=8", "train.micro_batch_size=1"]  # eight ranks
    job = submit(slurm, program, run, overrides=batch, script=SCRIPT.with_name("gpu.sbatch"))
    state = until_over(slurm, run, job)
    assert (state["JobState"], state["ExitCode"]) == ("FAILED", "2:0"), output(run)
    assert output(run).count("train.device is cuda: ") == 1, output(run)
