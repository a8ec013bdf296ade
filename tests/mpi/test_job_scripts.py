"""The job scripts of examples/: those for PBS against a stand-in for its server. tests/cluster runs those for Slurm under Slurm."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

import launchers
from test_runs import ENDLESS, RankRun, data  # noqa: F401

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
JOB = "123.server"
# qsub, qdel and qstat of the stand-in: the first two note how they were called, the third knows a job that starts now.
QSUB = '#!/bin/sh\necho "$@" >>"{folder}/submitted"\nenv >"{folder}/environment"\necho 124.server\n'
QDEL = '#!/bin/sh\necho "$@" >>"{folder}/deleted"\n'
QSTAT = '#!/bin/sh\necho "Job Id: $2"\necho "    Resource_List.walltime = {walltime}"\necho "    stime = $(date "+%a %b %d %H:%M:%S %Y")"\n'


class PbsJob:
    """What a PBS server gives a job: a copy of the script that starts in $HOME, in a session whose processes get all signals."""

    def __init__(self, program, run, folder, script="cpu.pbs", overrides=(), walltime="24:00:00", adapted=False):
        self.folder, self.run = folder, run
        self.home, tools = folder / "home", folder / "tools"
        for each in (self.home, tools):
            each.mkdir()
        for name, text in (("qsub", QSUB), ("qdel", QDEL), ("qstat", QSTAT)):
            (tools / name).write_text(text.format(folder=folder, walltime=walltime))
            (tools / name).chmod(0o755)
        (tools / "athanor").symlink_to(program("athanor"))
        nodes = folder / "nodes"
        nodes.write_text(f"{os.uname().nodename}\n" * 2)
        copy = folder / "123.SC"
        shutil.copy(EXAMPLES / "pbs" / script, copy)  # or another script, if its path is absolute
        shutil.copy(EXAMPLES / "pbs" / script, run.config.parent / "cpu.pbs")  # what SCRIPT names
        if adapted:
            copy.write_text(copy.read_text() + "# mine\n")
        settings = " ".join(f"--set {each}" for each in overrides)
        self.environment = {
            "PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(self.home), "PBS_JOBID": JOB, "PBS_JOBNAME": "athanor", "PBS_QUEUE": "workq",
            "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_O_WORKDIR": str(run.config.parent), "PBS_NODEFILE": str(nodes), "NCPUS": "2",
            "OMP_NUM_THREADS": "1", "ATHANOR_MATMUL": "default",
            # What `qsub -v` passes on:
            "ATHANOR": str(program("athanor")), "CONFIG": run.config.name, "OPTIONS": settings, "SCRIPT": "cpu.pbs",
            # This machine's: tests run as root, and with more ranks than cores.
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
        self.process = subprocess.Popen(["bash", copy], cwd=self.home, env=self.environment, start_new_session=True, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def signal(self, number):
        """Sends a signal as `qsig` does: to every process of the session, the shell and the ranks included."""
        for each in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                session = int((each / "stat").read_text().rpartition(")")[2].split()[3])
            except OSError:
                continue
            if session == self.process.pid:
                os.kill(int(each.name), number)

    def wait_for_steps(self, num):
        metrics = self.run.folder / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while not (metrics.exists() and metrics.read_text().count("\n") >= num) and time.monotonic() < deadline:
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.02)

    def ended(self):
        self.said = self.process.communicate(timeout=120)[0]
        return self.process.returncode

    def submitted(self):
        path = self.folder / "submitted"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def job(program, data, tmp_path):  # noqa: F811
    if launchers.find("Open MPI") is None or shutil.which("mpirun") is None or launchers.kind_of("mpirun")[0] != "Open MPI":
        pytest.skip("mpirun on the PATH is not Open MPI's")
    started = []

    def start(**options):
        run = RankRun(program, tmp_path, data, "run")
        started.append(PbsJob(program, run, tmp_path, **options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.signal(signal.SIGKILL)


def test_the_pbs_script_trains_where_it_was_submitted_and_submits_nothing_more(job):
    pbs = job()
    assert pbs.ended() == 0, pbs.said
    assert f"PBS job {JOB}: 2 ranks on 1 host: {os.uname().nodename} (0 to 1)" in pbs.said
    assert f"job {JOB}: the run is complete" in pbs.said
    assert [line["step"] for line in pbs.run.metrics()] == list(range(1, 9))
    assert not pbs.submitted() and not list(pbs.home.iterdir())


def test_near_its_walltime_it_submits_the_next_job_which_completes_the_run(job):
    pbs = job(walltime="00:01:00", overrides=["train.stop_margin=58s", "train.steps=1000", "train.validation_interval=0", "checkpoint.model_interval=0"])
    assert pbs.ended() == 10, pbs.said
    assert f"stopped by the end of PBS job {JOB}, less train.stop_margin (58s) after step" in pbs.said
    assert pbs.submitted() == ["-v SCRIPT,ATHANOR,CONFIG,LAUNCH,OPTIONS cpu.pbs"]
    passed_on = (pbs.folder / "environment").read_text()
    assert "\nOPTIONS=--set train.stop_margin=58s" in passed_on and "\nCONFIG=run.toml" in passed_on


def test_a_job_that_is_too_short_for_the_margin_does_one_step_each_time_and_no_endless_chain(job):
    pbs = job(walltime="00:01:00")
    assert pbs.ended() == 10, pbs.said
    assert "that is less than train.stop_margin: the run stops after its first step" in pbs.said
    assert [line["step"] for line in pbs.run.metrics()] == [1] and pbs.run.checkpoint(1).exists()


@pytest.mark.parametrize("number,code,submitted", [(signal.SIGUSR1, 10, 1), (signal.SIGTERM, 1, 0)], ids=["USR1", "TERM"])
def test_a_signal_to_the_whole_pbs_job_finishes_the_step_and_saves(job, number, code, submitted):
    pbs = job(overrides=[*ENDLESS, "train.global_batch_size=1024", "train.micro_batch_size=1"])
    pbs.wait_for_steps(1)
    pbs.signal(number)
    ended = pbs.ended()
    assert pbs.run.checkpoint(pbs.run.metrics()[-1]["step"]).exists(), pbs.said  # how many steps began meanwhile is the machine's
    assert ended == code and len(pbs.submitted()) == submitted, pbs.said


def printed_script(program, folder, *words, launch=()):
    """What `athanor launch --print-script pbs` prints for a training, as a file."""
    done = subprocess.run([program("athanor"), "launch", "--print-script", "pbs", *launch, "--", "athanor", "train", "run.toml", *words],
                          capture_output=True, text=True, check=True)
    (folder / "printed.pbs").write_text(done.stdout)
    return folder / "printed.pbs"


def test_the_printed_script_starts_a_rank_for_each_slot(job, program, tmp_path):
    pbs = job(script=printed_script(program, tmp_path))
    assert pbs.ended() == 0, pbs.said
    assert f"PBS job {JOB}: 2 ranks on 1 host: {os.uname().nodename} (0 to 1)" in pbs.said
    assert [line["step"] for line in pbs.run.metrics()] == list(range(1, 9))


def test_a_signal_to_the_printed_script_reaches_launch_and_ranks_and_saves_once(job, program, tmp_path):
    settings = [*ENDLESS, "train.global_batch_size=1024", "train.micro_batch_size=1"]
    pbs = job(script=printed_script(program, tmp_path, *(word for each in settings for word in ("--set", each))))
    pbs.wait_for_steps(1)
    pbs.signal(signal.SIGUSR1)
    assert pbs.ended() == 10 and len(pbs.submitted()) == 1, pbs.said
    saved = [folder.name for folder in (pbs.run.folder / "checkpoints").iterdir()]
    assert saved == [pbs.run.checkpoint(pbs.run.metrics()[-1]["step"]).name], pbs.said


@pytest.mark.parametrize("walltime,code", [("24:00:00", 0), ("00:01:00", 10)], ids=["complete", "out_of_time"])
def test_with_resubmit_launch_submits_the_next_job_and_deletes_it_if_the_run_is_complete(job, program, tmp_path, walltime, code):
    pbs = job(script=printed_script(program, tmp_path, launch=["--resubmit"]), walltime=walltime)
    assert pbs.ended() == code, pbs.said
    assert pbs.submitted() == [f"-W depend=afterany:{JOB} {pbs.run.config.parent}/cpu.pbs"], pbs.said
    deleted = pbs.folder / "deleted"
    assert (deleted.read_text().split() if deleted.exists() else []) == ([] if code else ["124.server"]), pbs.said


def test_an_adapted_copy_that_would_be_continued_by_the_example_is_refused(job):
    pbs = job(adapted=True)
    assert pbs.ended() == 2 and "SCRIPT=cpu.pbs is another script than this one" in pbs.said, pbs.said


def test_the_gpu_script_does_not_train_on_cpus_instead(job):
    pbs = job(script="gpu.pbs")
    assert pbs.ended() == 2 and pbs.said.count("train.device is cuda: ") == 1, pbs.said


def test_shellcheck_finds_nothing_in_the_job_scripts():
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    scripts = [*EXAMPLES.glob("slurm/*.sbatch"), *EXAMPLES.glob("pbs/*.pbs")]
    assert len(scripts) == 4
    done = subprocess.run(["shellcheck", "--shell=bash", *scripts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
