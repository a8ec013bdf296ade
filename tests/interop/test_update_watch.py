"""Updates that rounding spoils are measured at their interval, named once, and change no bit of a run."""
import pytest
from runs import Run, events, make_data

FIELDS = ["lost_updates", "still_weights", "underflown_moments", "not_finite_state", "orthogonality"]


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


def make_run(athanor, folder, data):
    folder.mkdir()
    return Run(athanor, folder, data, "olmoe")


def test_a_healthy_run_has_numbers_at_the_interval_no_event_and_the_same_bits(athanor, data, tmp_path):
    plain, measured = (make_run(athanor, tmp_path / name, data) for name in ("plain", "measured"))
    plain.train("optimizer.name=muon")
    measured.train("optimizer.name=muon", "metrics.update_watch_interval=2")
    assert measured.numbers() == plain.numbers()
    assert measured.hashes() == plain.hashes()
    assert events(measured, "updates") == []
    for line in measured.metrics():
        assert [name in line for name in FIELDS] == [line["step"] % 2 == 0] * len(FIELDS)
        if line["step"] % 2 == 0:
            assert 0.5 < line["orthogonality"][0]["norm"] < 1.3
            assert len(line["orthogonality"]) == 4 and line["not_finite_state"] == []


def test_updates_that_fp32_loses_are_named_once_with_the_remedy(athanor, data, tmp_path):
    run = make_run(athanor, tmp_path / "run", data)
    done = run.train("optimizer.lr=1e-11", "optimizer.min_lr=1e-11", "optimizer.warmup_steps=1", "metrics.update_watch_interval=2", "train.dtype=float32")
    found = events(run, "updates")
    assert [(event["kind"], event["step"]) for event in found] == [("lost", 2)]
    assert "model.norm.weight" in found[0]["parameters"]
    assert found[0]["text"].startswith("step 2: fp32 loses the updates of model.") and "optimizer.lr" in found[0]["text"]
    assert (done.stdout + done.stderr).count(found[0]["text"]) == 1
    assert all(line["lost_updates"][0]["share"] == 1 for line in run.metrics() if line["step"] % 2 == 0)
