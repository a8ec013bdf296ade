"""TensorBoard's own reader reads our event files: tags, steps, values, and a resumed run that supersedes."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from runs import Run, make_data

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="pip install tensorboard")

ROOT = Path(__file__).resolve().parents[2]
BUILD = os.environ.get("ATHANOR_BUILD") or Path(os.environ.get("ATHANOR_BIN", ROOT / "build" / "athanor")).parent
METRICS_TEST = Path(BUILD) / "metrics_test"

pytestmark = pytest.mark.skipif(not METRICS_TEST.exists(), reason=f"{METRICS_TEST} is not built; set ATHANOR_BUILD")


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """Makes a run that was killed after step 5 and resumed from step 3, as MetricsLog leaves it."""
    folder = tmp_path_factory.mktemp("run")
    case = "MetricsLogTest.ARunCutAndResumedLeavesEventsForTensorBoard"
    done = subprocess.run(
        [METRICS_TEST, f"--gtest_filter={case}"], env={**os.environ, "ATHANOR_WRITE_EVENTS": str(folder)}, capture_output=True
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


@pytest.fixture(scope="module")
def run(athanor, tmp_path_factory):
    """A sparse run whose statistics of layers are shown every second step."""
    made = Run(athanor, tmp_path_factory.mktemp("observed"), make_data(athanor, tmp_path_factory.mktemp("data")))
    made.train("train.steps=4", "metrics.layer_statistics=2")
    return made


@pytest.fixture(scope="module")
def observed(run):
    return accumulator.EventAccumulator(str(run.folder / "tensorboard"), size_guidance={accumulator.HISTOGRAMS: 0}).Reload()


def test_histograms_count_every_weight_and_have_the_norms_of_metrics_jsonl(run, observed):
    lines = {line["step"]: line for line in run.metrics()}
    assert [step for step in lines if "layer_grad_norm" in lines[step]] == [2, 4]
    # q, k, v, o of 4 and 2 heads of 8; their norms; two norms; a router and 8 experts of 24
    of_layer = 32 * (32 + 16 + 16 + 32) + 32 + 16 + 2 * 32 + 8 * 32 + 8 * 3 * 24 * 32
    for name, elements in ("layer_00", of_layer), ("layer_01", of_layer), ("embedding", 320 * 32), ("output", 32 + 320 * 32):
        for kind, norm in ("weights", "weight_norm"), ("gradients", "grad_norm"):
            histograms = observed.Histograms(f"layers/{kind}_{name}")
            assert [event.step for event in histograms] == [2, 4]
            for event in histograms:
                value = event.histogram_value
                assert sum(value.bucket) == value.num == elements
                assert value.bucket_limit == sorted(value.bucket_limit) and value.min < value.max == value.bucket_limit[-1]
                line = lines[event.step]
                expected = line[f"layer_{norm}"][int(name[-1])] if name[-1].isdigit() else line[f"{name}_{norm}"]
                assert value.sum_squares ** 0.5 == pytest.approx(expected, rel=1e-5)  # six digits


def test_the_histograms_of_weights_describe_the_weights(observed):
    """Norm scales are one, and other weights are small: the sum is that of the scales, about."""
    value = observed.Histograms("layers/weights_layer_00")[0].histogram_value
    above = sum(count for limit, count in zip(value.bucket_limit, value.bucket) if limit > 0.8)
    assert above == 32 + 16 + 2 * 32


def test_the_layers_add_up_to_the_gradient_norm(run):
    for line in run.metrics()[1::2]:
        norms = [*line["layer_grad_norm"], line["embedding_grad_norm"], line["output_grad_norm"]]
        assert sum(norm ** 2 for norm in norms) ** 0.5 == pytest.approx(line["grad_norm"], rel=1e-5)


def test_the_configuration_is_in_the_tab_of_hyperparameters(observed):
    metadata = pytest.importorskip("tensorboard.plugins.hparams.metadata")
    content = observed.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    hparams = metadata.parse_session_start_info_plugin_data(content).hparams
    assert hparams["optimizer.lr"].number_value == 0.01
    assert hparams["model.family"].string_value == "olmoe"
    assert hparams["train.global_batch_size"].number_value == 4
    assert hparams["model.tie_word_embeddings"].WhichOneof("kind") == "bool_value"
    assert "train.run_dir" not in hparams and "data.path" not in hparams
