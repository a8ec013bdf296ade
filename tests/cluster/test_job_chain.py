"""`athanor launch --resubmit` under a real Slurm: jobs that follow one another until the run is complete."""
import json

from cluster_runs import ENDLESS
from test_launch_on_hosts import submit_launch
from test_slurm import options, output, until_over, until_steps


def script(*settings):
    return ("#!/bin/bash\n#SBATCH --exclusive\n#SBATCH --output=athanor-%j.log\n"
            f"exec athanor launch --ppn 2 --resubmit -- athanor train run.toml {options(*settings)}\n")


def jobs(run):
    return [json.loads(line) for line in (run.folder / "attempts/jobs.jsonl").read_text().splitlines()]


def test_jobs_that_run_out_of_time_follow_one_another_until_the_run_is_complete(slurm, program, long_steps):
    run = long_steps
    # The number of nodes is on the command line of sbatch alone: the next job has it, too.
    job = submit_launch(slurm, program, run, script("train.steps=3", "train.stop_after=1s", "checkpoint.interval=1000", "checkpoint.model_interval=0"),
                        "--nodes=2")
    for number in (1, 2, 3):
        state = until_over(slurm, run, job)
        assert state["ExitCode"] == ("0:0" if number == 3 else "10:0") and state["NumNodes"] == "2", output(run)
        line = [each for each in jobs(run) if each["job"] == str(job)][0]
        assert (line["number"], line["step"]) == (number, number - 1 or None), jobs(run)
        previous, job = job, int(line["next"])
    assert jobs(run)[-1] == {"job": str(previous), "next": str(job), "cancelled": True, "time": jobs(run)[-1]["time"]}
    assert slurm.state(job)["JobState"] == "CANCELLED", output(run)
    assert run.steps() == [1, 2, 3] and f"job {job}, which would have continued, is cancelled: success" in output(run)


def test_a_job_that_its_user_cancels_has_no_successor(slurm, program, long_steps):
    run = long_steps
    job = submit_launch(slurm, program, run, script(*ENDLESS), "--nodes=2")
    until_steps(slurm, run, 1)
    (line,) = jobs(run)
    slurm("scancel", "--full", "--signal=TERM", str(job))
    until_over(slurm, run, job)
    assert slurm.state(int(line["next"]))["JobState"] == "CANCELLED", output(run)
    assert "is cancelled: SIGTERM came" in output(run), output(run)


def test_what_no_job_can_cure_has_no_successor(slurm, program, run):
    job = submit_launch(slurm, program, run, script("train.steps=20", "optimizer.lr=1e30", "optimizer.weight_decay=0", "checkpoint.interval=1"), "--nodes=2")
    assert until_over(slurm, run, job)["ExitCode"] == "76:0", output(run)
    assert slurm.state(int(jobs(run)[0]["next"]))["JobState"] == "CANCELLED", output(run)
