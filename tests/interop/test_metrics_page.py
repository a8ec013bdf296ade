"""docs/metrics.md has every field that a run writes, and no other."""
import json
import pathlib
import re

import pytest
from gate_rows import write_rows
from runs import Run, make_data
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()


def names_of(title, column=0):
    """The names in backticks in a column of the table in a section of the page."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row[column])}


@pytest.fixture(scope="module")
def run(athanor, tmp_path_factory):
    """A sparse run that validates, is stopped, resumes, goes back, and is evaluated."""
    data = make_data(athanor, tmp_path_factory.mktemp("data"))
    made = Run(athanor, tmp_path_factory.mktemp("run"), data, "olmoe")
    made.train(fault="train.after_step:term@3", check=False)
    made.train()
    made.train(f"checkpoint.resume={made.folder}/models/step-00000004", "optimizer.lr=0.003", "metrics.layer_statistics=3", "metrics.noise_scale_interval=2", "metrics.update_watch_interval=2",
               *write_rows(tmp_path_factory.mktemp("gate")), 'eval.warn_if=["texts > 1"]')
    return made


def test_every_field_of_a_step_is_defined(run):
    written = {name for line in run.metrics() for name in line}
    assert written - names_of("metrics.jsonl") == set()


def test_no_field_of_one_rank_is_defined_that_no_step_has(run):
    written = {name for line in run.metrics() for name in line}
    of_several = {"validation_losses", "stage", "tokens_drawn", "rank_grad_norms", "rank_grad_norm_imbalance", "rank_grad_norm_extremes", "expert_grad_norm_extremes", "expert_grad_norms",
                  "expert_grad_norm_imbalance", "tokens_per_dest_rank", "communication", "reduced_in_backward", "rank_times", "rank_time_extremes"}
    of_an_optimizer = {"clipped_share", "attention_logit_max", "attention_logit_max_layer", "clipped_heads"}
    on_a_device = {"device_memory_bytes", "peak_device_memory_bytes", "held_device_memory_bytes", "device_waits", "copies_to_device",
                   "copies_to_host"}
    source = (ROOT / "src" / "metrics" / "metrics.cpp").read_text()
    for name in names_of("metrics.jsonl") - written:
        assert name in of_several | on_a_device | of_an_optimizer and f'line["{name}"]' in source, name


def test_a_run_with_qk_clip_has_the_largest_logit_of_each_step_and_how_many_heads_it_clipped(athanor, tmp_path):
    data = make_data(athanor, tmp_path)
    run = Run(athanor, tmp_path, data, "llama")
    run.train("optimizer.qk_clip=1e-3", "metrics.tensorboard=true")
    heads = 2 * 4
    for line in run.metrics():
        assert {"attention_logit_max", "attention_logit_max_layer", "clipped_heads"} <= set(line) <= names_of("metrics.jsonl")
        assert line["attention_logit_max"] > 1e-3 and line["attention_logit_max_layer"] in (0, 1) and 0 < line["clipped_heads"] <= heads
    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    assert {"optimizer/attention_logit_max", "optimizer/clipped_heads"} <= set(events.Tags()["scalars"])


def test_every_event_and_its_fields_are_defined(run):
    lines = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    assert {line["event"] for line in lines} >= {"start", "resume", "went_back", "save", "stop", "end", "evaluation", "rule"}
    section = PAGE.split("\n## events.jsonl\n")[1].split("\n## ")[0]
    defined = set(re.findall(r"`([^`]+)`", section))
    for line in lines:
        assert line["event"] in names_of("events.jsonl")
        assert set(line) - defined == set(), line["event"]


def test_every_tag_of_tensorboard_is_defined(run):
    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    patterns = [re.escape(name).replace("SOURCE", ".+").replace("LAYER", r"\d\d").replace("GROUP", ".+").replace("TASK", "[^/]+")
                .replace("METRIC", "[^/]+")
                for name in names_of("TensorBoard")]
    tags = events.Tags()
    assert tags["histograms"]
    for tag in tags["scalars"] + tags["histograms"]:
        assert any(re.fullmatch(pattern, tag) for pattern in patterns), tag


def test_the_step_line_has_the_names_of_the_page(run):
    line = re.search(r"^step: .*$", PAGE, re.M).group()
    output = run.train("train.steps=9", "checkpoint.resume=auto").stdout.splitlines()[-1]
    names = r"(\w+): "
    assert set(re.findall(names, output)) - set(re.findall(names, line)) == set()
