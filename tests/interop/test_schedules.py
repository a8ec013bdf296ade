"""Schedules that are longer than the run or count tokens, batches that grow, and the gradient noise scale."""
import math

import pytest
from runs import Run, events, make_data

# 32 tokens in a sequence; steps 1 and 2 have one, 3 and 4 have two, and the others four.
RAMP = """
[[train.batch_ramp]]
sequences = 1
until_tokens = 64
[[train.batch_ramp]]
sequences = 2
until_tokens = 150
"""
SIZES = [1, 1, 2, 2, 4, 4, 4, 4]


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


def make_run(athanor, folder, data, ramp=RAMP):
    folder.mkdir(exist_ok=True)
    run = Run(athanor, folder, data)
    text = run.config.read_text().replace("[data]", "[data]\nseq_len = 32").replace("micro_batch_size = 2", "micro_batch_size = 1")
    run.config.write_text(text + ramp)
    return run


def cosine(at, warmup, whole, lr=1e-2, min_lr=1e-3):
    if at <= warmup:
        return lr * at / warmup
    return min_lr + 0.5 * (lr - min_lr) * (1 + math.cos(math.pi * min(1, (at - warmup) / (whole - warmup))))


def rates(run):
    return [line["lr"] for line in run.metrics()]


def test_a_run_that_ends_before_its_schedule_is_the_beginning_of_the_long_run(athanor, data, tmp_path):
    long, cut = (make_run(athanor, tmp_path / name, data, "") for name in ("long", "cut"))
    long.train("train.steps=16", "train.validation_interval=4", "checkpoint.interval=8")
    cut.train("optimizer.schedule_steps=16", "checkpoint.interval=8")
    assert cut.numbers() == long.numbers()[:8]
    assert cut.hashes() == long.hashes()


def test_a_longer_run_keeps_min_lr(athanor, data, tmp_path):
    run = make_run(athanor, tmp_path, data, "")
    run.train("optimizer.schedule_steps=6")
    assert rates(run)[5:] == pytest.approx([1e-3] * 3)


def test_a_complete_run_that_is_made_longer_tells_how_its_rate_jumps_and_what_keeps_it(athanor, data, tmp_path):
    run = make_run(athanor, tmp_path, data, "")
    run.train("train.steps=6")
    assert "learning rate goes" not in run.train("train.steps=8", "optimizer.schedule_steps=6").stderr
    said = run.train("train.steps=16").stderr
    (jump,) = events(run, "lr_jump")
    assert (jump["before"], jump["now"], jump["step"]) == (1e-3, pytest.approx(rates(run)[8]), 8)
    assert jump["text"] in said and "goes from 0.001 to" in jump["text"] and jump["now"] > 5e-3
    assert "optimizer.schedule_steps = 6 keeps the earlier schedule (0.001 at this step)" in jump["text"]


def test_a_batch_grows_by_the_tokens_seen_and_the_schedule_goes_on(athanor, data, tmp_path):
    run = make_run(athanor, tmp_path, data)
    run.train("train.batch_ramp_lr=linear")
    lines = run.metrics()
    assert [line["sequences"] for line in lines] == SIZES
    assert [line["tokens"] for line in lines] == [32 * size for size in SIZES]
    assert [line["tokens_seen"] for line in lines] == [32 * sum(SIZES[:i + 1]) for i in range(8)]
    assert rates(run) == pytest.approx([cosine(i + 1, 3, 8) * size / 4 for i, size in enumerate(SIZES)])
    assert all("stage" not in line for line in lines)
    assert sum(source["drawn"] for source in run.manifest(8)["state"]["data"]["sources"].values()) == sum(SIZES)


def test_a_schedule_of_tokens_follows_them_through_a_ramp(athanor, data, tmp_path):
    run = make_run(athanor, tmp_path, data)
    run.config.write_text(run.config.read_text().replace("warmup_steps = 3\n", "schedule_tokens = 6e2\nwarmup_tokens = 96\n"))
    run.train()
    assert rates(run) == pytest.approx([cosine(32 * sum(SIZES[:i + 1]), 96, 600) for i in range(8)])
    assert run.metrics()[-1]["tokens_seen"] == 704  # and after the end of the schedule
    assert rates(run)[-1] == pytest.approx(1e-3)


@pytest.fixture(scope="module")
def whole(athanor, data, tmp_path_factory):
    """A run with a ramp that nothing stops."""
    run = make_run(athanor, tmp_path_factory.mktemp("whole"), data)
    run.train("checkpoint.interval=1")
    return run


@pytest.mark.parametrize("after", [1, 2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_anywhere_in_its_ramp_resumes_bit_for_bit(athanor, data, tmp_path, whole, after):
    cut = make_run(athanor, tmp_path / "cut", data)
    assert cut.train("checkpoint.interval=1", fault=f"train.after_step:kill@{after}", check=False).returncode != 0
    cut.train("checkpoint.interval=1", "data.num_threads=2")
    assert cut.numbers() == whole.numbers()
    assert cut.hashes() == whole.hashes()
    assert cut.manifest()["state"]["data"] == whole.manifest()["state"]["data"]


def test_another_ramp_is_refused_within_it_and_changes_nothing(athanor, data, tmp_path):
    run = make_run(athanor, tmp_path, data)
    run.train("train.steps=3", "optimizer.schedule_steps=8")
    before = (run.folder / "config.toml").read_bytes(), (run.folder / "events.jsonl").read_bytes()
    done = run.train("train.batch_ramp=[{sequences = 2, until_tokens = 640}]", check=False)
    assert done.returncode == 2
    assert "this run has seen 128 tokens in 3 steps, and with this train.batch_ramp it would have seen 192" in done.stderr
    assert before == ((run.folder / "config.toml").read_bytes(), (run.folder / "events.jsonl").read_bytes())
    run.train("train.batch_ramp=[]")  # may be left out: the next steps have train.global_batch_size
    assert [line["sequences"] for line in run.metrics()] == [1, 1, 2] + [4] * 5


def test_config_shows_the_steps_of_each_size(athanor, data, tmp_path):
    run = make_run(athanor, tmp_path, data)
    shown = athanor.run("config", run.config, "--set", "train.batch_ramp_lr=sqrt").stdout.splitlines()
    assert shown[-3:] == ["# steps 1 to 2: batch of 1, learning rate × 0.5; 64 tokens seen at the end",
                          "# steps 3 to 4: batch of 2, learning rate × 0.7071; 192 tokens seen at the end",
                          "# steps 5 to 8: batch of 4, learning rate × 1; 704 tokens seen at the end"]


def test_every_size_is_checked_for_the_ranks_before_anything_starts(athanor, data, tmp_path):
    run = make_run(athanor, tmp_path, data)
    done = athanor.run("config", run.config, "--ranks", 2, check=False)
    assert done.returncode == 2
    assert "batch of 1: train.batch_ramp[0].sequences (1) is not a multiple of 2 data ranks" in done.stderr
    assert "batch of 2" not in done.stderr


def test_a_dry_run_plans_the_last_size_of_a_ramp(athanor, data, tmp_path):
    run = make_run(athanor, tmp_path, data)
    ramped = athanor.run("verify", run.config, "--dry-run").stdout
    assert ramped == athanor.run("verify", run.config, "--dry-run", "--set", "train.batch_ramp=[]").stdout
    assert "4 microbatches of 1 x 32 tokens" in ramped


def test_the_noise_scale_is_measured_at_its_interval_and_changes_no_bit(athanor, data, tmp_path):
    plain, measured = (make_run(athanor, tmp_path / name, data, "") for name in ("plain", "measured"))
    plain.train()
    measured.train("metrics.noise_scale_interval=2")
    assert measured.numbers() == plain.numbers()
    assert measured.hashes() == plain.hashes()
    names = ["noise_scale", "noise_gradient_squared", "noise_variance"]
    for line in measured.metrics():
        assert [name in line for name in names] == [line["step"] % 2 == 0] * 3
        if line["step"] % 2 == 0:  # both estimates come from the norm: |G|² + tr(Σ) / B is |g|²
            whole = line["noise_gradient_squared"] + line["noise_variance"] / 4
            assert whole == pytest.approx(line["grad_norm"] ** 2, rel=1e-4)  # the file has six digits
