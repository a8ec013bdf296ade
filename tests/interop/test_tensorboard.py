"""TensorBoard's own reader reads our event files: tags, steps, values, and a resumed run that supersedes."""

import os
import subprocess
import time
from pathlib import Path

import pytest

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="pip install tensorboard")

ROOT = Path(__file__).resolve().parents[2]
BUILD = os.environ.get("ATHANOR_BUILD") or Path(os.environ.get("ATHANOR_BIN", ROOT / "build" / "athanor")).parent
TRAIN_TEST = Path(BUILD) / "train_test"

pytestmark = pytest.mark.skipif(not TRAIN_TEST.exists(), reason=f"{TRAIN_TEST} is not built; set ATHANOR_BUILD")


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """Makes a run that was killed after step 5 and resumed from step 3, as MetricsLog leaves it."""
    folder = tmp_path_factory.mktemp("run")
    case = "MetricsLogTest.ARunCutAndResumedLeavesEventsForTensorBoard"
    done = subprocess.run(
        [TRAIN_TEST, f"--gtest_filter={case}"], env={**os.environ, "ATHANOR_WRITE_EVENTS": str(folder)}, capture_output=True
    )
    assert done.returncode == 0 and b"1 test" in done.stdout, done.stdout.decode() + done.stderr.decode()
    read = accumulator.EventAccumulator(str(folder / "tensorboard"), size_guidance={accumulator.SCALARS: 0})
    return read.Reload()


def scalars(events, tag):
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_every_step_is_there_once_and_redone_steps_have_their_new_values(events):
    assert scalars(events, "loss/train") == [(1, 8), (2, 7), (3, 6), (4, 2), (5, 2.5), (6, 3)]


def test_validation_is_there_at_the_steps_that_measured_it(events):
    assert scalars(events, "loss/validation") == [(2, 8), (4, 3), (6, 4)]


def test_tags_are_grouped(events):
    groups = {tag.split("/")[0] for tag in events.Tags()["scalars"]}
    assert groups == {"loss", "optimizer", "router", "throughput", "time", "memory"}


def test_values_are_those_of_the_step(events):
    assert events.Scalars("throughput/tokens_per_second")[0].value == 2048
    assert events.Scalars("optimizer/lr")[0].value == pytest.approx(4e-5, rel=2**-24)
    assert events.Scalars("router/load_max_over_mean")[0].value == 2.5
    assert events.Scalars("router/load_max_over_mean_layer_00")[0].value == 1.25


def test_times_are_of_now(events):
    times = [event.wall_time for event in events.Scalars("loss/train")]
    assert times == sorted(times) and abs(times[-1] - time.time()) < 3600
