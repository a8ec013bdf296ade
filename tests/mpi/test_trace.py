"""`metrics.timeline_step`: the trace of a step shows what each rank did, in any layout, and changes no bits."""
import json
import subprocess

import pytest
from test_runs import KEYS, RankRun, data, open_mpi  # noqa: F401

STEP = 6  # a checkpoint is saved after it, and the losses of held-out text are computed
SETTINGS = ["train.steps=8", "checkpoint.interval=3", "train.validation_interval=3", "train.global_batch_size=8"]
PIPELINE = ["parallelism.pipeline_parallel_degree=2", "parallelism.expert_parallel_degree=2", "moe.dispatch=all_to_all"]
TENSOR = ["parallelism.tensor_parallel_degree=2"]


def trace_of(run):
    return json.loads((run.folder / "log" / f"trace-step-{STEP}.json").read_text())


def rows_of(trace, rank):
    """The slices of the rank's threads, by thread."""
    rows = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["pid"] == rank:
            rows.setdefault(event["tid"], []).append(event)
    return rows


def check_nesting(slices):
    """Slices of a thread lie within one another, or apart: else viewers draw nonsense."""
    digit = 0.0015  # microseconds: times are rounded to nanoseconds
    open_until = []
    for each in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= each["ts"] + digit:
            open_until.pop()
        assert not open_until or each["ts"] + each["dur"] <= open_until[-1] + digit, each
        open_until.append(each["ts"] + each["dur"])


def check_trace(trace, ranks):
    names = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M" and event["name"] == "process_name"}
    assert sorted(names) == list(range(ranks)) and all(name.startswith(f"rank {rank}") for rank, name in names.items())
    assert trace["otherData"]["step"] == STEP and trace["otherData"]["ranks"] == ranks
    begun = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "b"}
    ended = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "e"}
    assert set(begun) == set(ended) and all(ended[key]["ts"] >= event["ts"] >= 0 for key, event in begun.items())
    for rank in range(ranks):
        for slices in rows_of(trace, rank).values():
            check_nesting(slices)
            assert all(each["ts"] >= 0 and each["dur"] >= 0 for each in slices)


def names_in(trace, rank, category=None):
    return [event["name"] for event in trace["traceEvents"]
            if event.get("pid") == rank and event["ph"] in "Xb" and (category is None or event["cat"] == category)]


def test_one_rank_shows_its_phases_its_layers_its_reads_and_its_saves(program, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "one").alone(*SETTINGS, f"metrics.timeline_step={STEP}")
    trace = trace_of(run)
    check_trace(trace, 1)
    assert {"wait for batch", "update", "save", "validate"} <= set(names_in(trace, 0, "phase"))
    assert names_in(trace, 0, "forward").count("layers.1.mlp") == 8 and names_in(trace, 0, "backward").count("layers.0.self_attn backward") == 8
    assert [name for name in names_in(trace, 0, "forward") if name[0] == "F"] == [f"F{i}" for i in range(8)]
    assert "read a batch" in names_in(trace, 0, "reading")
    assert "write a checkpoint" in names_in(trace, 0, "saving")
    for action in (event for event in rows_of(trace, 0)[1] if event["name"] == "F3"):
        parts = [event for event in rows_of(trace, 0)[1] if event["cat"] == "forward" and event["name"].startswith("layers.")
                 and action["ts"] <= event["ts"] and event["ts"] + event["dur"] <= action["ts"] + action["dur"]]
        assert [part["name"] for part in parts] == [f"layers.{i}.{part}" for i in range(2) for part in ("self_attn", "mlp")]
    assert names_in(trace, 0, "forward").count("output and loss") == 8
    assert not list((run.folder / "log").glob("pipeline-*"))


@pytest.mark.parametrize("layout", [PIPELINE, TENSOR], ids=["pipeline-and-experts", "tensor"])
def test_several_ranks_show_their_collectives_by_group_and_keep_their_bits(program, open_mpi, data, tmp_path, layout):  # noqa: F811
    ranks = 4 if layout is PIPELINE else 2
    traced = RankRun(program, tmp_path, data, "traced").on(open_mpi, ranks, *SETTINGS, *layout, f"metrics.timeline_step={STEP}")
    plain = RankRun(program, tmp_path, data, "plain").on(open_mpi, ranks, *SETTINGS, *layout)
    assert [[line.get(key) for key in KEYS] for line in traced.metrics()] == [[line.get(key) for key in KEYS] for line in plain.metrics()]
    trace = trace_of(traced)
    check_trace(trace, ranks)
    groups = {"expert: all_to_all", "pipeline: send", "pipeline: receive"} if layout is PIPELINE else {"tensor: all_reduce"}
    for rank in range(ranks):
        shown = set(names_in(trace, rank))
        assert groups | {f"wait: {name}" for name in groups} <= shown, rank
        waits = [(e["name"], e["args"]["number"]) for e in rows_of(trace, rank)[1] if e["name"].startswith("wait: ") and "send" not in e["name"] and "receive" not in e["name"]]
        assert len(waits) == len(set(waits)), "each call is waited for once"
    if layout is PIPELINE:
        report = json.loads((traced.folder / "log" / f"pipeline-step-{STEP}.json").read_text())
        assert report["ranks"] == 2 and [len(row) for row in report["timeline"]] == [2 * report["microbatches"]] * 2
        first = [event for event in rows_of(trace, 0)[1] if event["name"] == "F0"][0]
        shown = report["timeline"][0][0]
        assert shown["action"] == "F0" and abs((shown["end_s"] - shown["begin_s"]) * 1e6 - first["dur"]) < 0.01
        assert (traced.folder / "log" / f"pipeline-step-{STEP}.svg").exists()


@pytest.mark.slow
def test_a_step_with_more_spans_than_are_kept_has_its_microbatches_and_its_picture(program, open_mpi, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "many").on(open_mpi, 2, "train.steps=1", "train.global_batch_size=3000", "parallelism.pipeline_parallel_degree=2",
                                                      "model.hidden_size=8", "model.num_attention_heads=1", "model.num_key_value_heads=1",
                                                      "model.intermediate_size=4", "model.num_experts=2", "model.num_experts_per_tok=1",
                                                      "train.validation_interval=0", "checkpoint.interval=0", "checkpoint.model_interval=0",
                                                      "metrics.timeline_step=1", "optimizer.warmup_steps=0")
    assert "the trace has the first 20000 spans" in run.said
    trace = json.loads((run.folder / "log" / "trace-step-1.json").read_text())
    assert {"F2999", "B2999", "update"} <= {event["name"] for event in trace["traceEvents"] if event["pid"] == 0}
    assert (run.folder / "log" / "pipeline-step-1.svg").exists()


def test_the_times_of_the_ranks_are_all_of_their_time_and_the_report_shows_them(program, open_mpi, data, tmp_path):  # noqa: F811
    run = RankRun(program, tmp_path, data, "times").on(open_mpi, 2, "train.steps=45", "train.validation_interval=10", "checkpoint.interval=15")
    lines = run.metrics()
    assert [line["step"] for line in lines if "rank_times" in line] == [20, 40]
    times = lines[39]["rank_times"]
    assert all(len(of) == 2 for of in times.values())
    # Times are taken after step 20 and after step 40: after the line before was written, and before that of the step is. (No rank ends a step
    # before rank 0 takes part in it.) fp32 and six digits round the ten parts, and a line has its time in ms.
    rounding = 1e-6 * sum(sum(of) for of in times.values()) + 1e-3 / 20
    least, most = ((lines[b]["time"] - lines[a]["time"]) / 20 for a, b in ((19, 38), (18, 39)))
    for rank in range(2):
        assert least - rounding <= sum(of[rank] for of in times.values()) <= most + rounding
        assert times["forward_compute"][rank] > 0 and times["backward_comm"][rank] > 0 and times["evaluation"][rank] > 0
    # Both clocks see the same computation; they differ by what lies between two microbatches. Forward and backward differ by far more.
    own = lines[20:40]
    for part in ("forward_compute", "backward_compute"):
        assert times[part][0] == pytest.approx(sum(line[f"{part}_s"] for line in own) / 20, rel=0.2, abs=5e-4), part
    subprocess.run([run.program, "report", run.folder, "--out", tmp_path / "page.html"], check=True, capture_output=True)
    assert "Milliseconds a step, by rank" in (tmp_path / "page.html").read_text()
