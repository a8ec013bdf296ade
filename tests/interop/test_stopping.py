"""A run is stopped by signals and by limits of time, and saves when it is asked to or when its time has come."""
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
from runs import Run, events, make_data


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


@pytest.fixture
def run(athanor, data, tmp_path):
    return Run(athanor, tmp_path, data, "olmoe")


def test_a_limit_of_time_saves_and_stops_with_a_code_of_its_own(run):
    done = run.train("train.stop_after=1s", "train.steps=1000000", "train.num_threads=1", check=False)
    assert done.returncode == 10
    last = run.metrics()[-1]["step"]
    assert f"stopped by train.stop_after (1s) after step {last}" in done.stderr
    assert run.checkpoints()[-1] == f"step-{last:08}"


def test_the_end_of_a_slurm_job_is_found_and_the_run_stops_before_it(run, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 302))
    done = run.train("train.steps=1000000", "train.num_threads=1", check=False)
    assert done.returncode == 10
    assert "stopped by the end of Slurm job 17, less train.stop_margin (5m) after step" in done.stderr


def test_a_warning_of_the_scheduler_saves_and_goes_on_or_stops(run):
    process = subprocess.Popen([str(run.athanor.path), "train", str(run.config), "--set", "train.steps=1000000",
                                "--set", "checkpoint.interval=1000000", "--set", "checkpoint.model_interval=0"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGUSR2)
    deadline = time.monotonic() + 300
    while not list((run.folder / "checkpoints").glob("step-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    saved = run.checkpoints()
    assert len(saved) == 1 and process.poll() is None
    process.send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 10
    assert "SIGUSR2: saving after this step" in err and "stopped by SIGUSR1 after step" in err
    assert run.checkpoints()[0] == saved[0] and len(run.checkpoints()) == 2


def test_checkpoints_by_time_are_kept_as_asked(run):
    run.train("checkpoint.async=false", "checkpoint.interval=1000000", "checkpoint.interval_minutes=1e-6",
              "checkpoint.keep=1", "checkpoint.keep_every=3")
    assert run.checkpoints() == ["step-00000003", "step-00000006", "step-00000008"]


def test_a_checkpoint_by_time_that_was_put_off_is_followed_by_another_only_after_the_interval(run):
    settings = ["checkpoint.interval=1000000", "checkpoint.model_interval=0", "train.validation_interval=0", "train.steps=1000000",
                f"checkpoint.interval_minutes={1 / 60}", "train.num_threads=1"]
    words = [part for setting in settings for part in ("--set", setting)]
    process = subprocess.Popen([str(run.athanor.path), "train", str(run.config), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "ATHANOR_FAULT": "checkpoint.sync:stall2@1"})
    while len(saves := events(run, "save") if (run.folder / "events.jsonl").exists() else []) < 4:
        assert process.poll() is None
        time.sleep(0.01)
        if (run.folder / "metrics.jsonl").exists():  # from then on it is paused most of the time, and leaves the processor to others
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.04)
            process.send_signal(signal.SIGCONT)
    process.terminate()
    assert process.wait(timeout=300) == 143
    begins = [each["time"] - each["seconds"] for each in saves]
    assert min(after - before for before, after in zip(begins, begins[1:])) > 0.8, begins  # 1 s, and the time to write two lines


def test_a_second_signal_exits_at_once(run):
    process = subprocess.Popen([str(run.athanor.path), "train", str(run.config), "--set", "train.steps=1000000",
                                "--set", "checkpoint.interval=0", "--set", "checkpoint.model_interval=0"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)  # both signals are pending before it runs run
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=300) in (130, 143)
    process.stdout.close()


def test_settings_of_the_end_do_not_make_another_branch(run):
    run.train()
    back = f"checkpoint.resume={run.folder}/models/step-00000004"
    run.train(back, "train.steps=9")
    done = run.train(back, "train.steps=9", "train.stop_after=1h", "train.on_sigusr1=save")
    assert "once more, for another branch" not in done.stderr and "is complete at step 9" in done.stderr


def test_the_interval_auto_saves_as_often_as_failures_ask_for(run):
    often = ["checkpoint.interval=auto", "checkpoint.mtbf_hours=1e-7", "checkpoint.model_interval=0", "checkpoint.keep=1000"]
    # How many steps pass between two saves depends on how long the disk takes for one, so the run continues until there are six.
    options = [*often, "checkpoint.async=false", "train.steps=1000000", "train.validation_interval=0", "optimizer.schedule=constant"]
    process = subprocess.Popen([str(run.athanor.path), "train", str(run.config)] + [word for option in options for word in ("--set", option)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while len(list((run.folder / "checkpoints").glob("step-*"))) < 6 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.terminate()
    _, err = process.communicate(timeout=300)
    assert "checkpoints every " in err and "(checkpoint.mtbf_hours and 1 node(s)); by Daly's formula" in err
    assert len(run.checkpoints()) >= 6
    shutil.rmtree(run.folder)
    run.train(*often, "checkpoint.mtbf_hours=1e6", "train.steps=30", "train.validation_interval=0")
    assert run.checkpoints() == ["step-00000002", "step-00000030"]


def test_the_last_save_begins_earlier_if_saves_take_longer_than_the_margin(run, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 8))
    done = run.train("train.stop_margin=1s", "train.steps=1000000", "checkpoint.interval=2", "checkpoint.model_interval=0",
                     fault="checkpoint.sync:stall3@1", check=False)
    assert done.returncode == 10
    assert re.search(r"the last one begins 0:0[45] before the end of Slurm job 17", done.stderr), done.stderr[-3000:]
    assert re.search(r"stopped by the end of Slurm job 17, less 1.5 times the longest save \(0:0[45]\) after step", done.stderr)
