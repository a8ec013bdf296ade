"""A run whose ranks are killed while they save continues each time, and ends with the bits of a run that nothing stopped."""
import collections
import json
import os
import random
import shutil

import pytest
from launchers import with_fault_on
from test_runs import KEYS, RankRun, data  # noqa: F401

STALL_S, TIMEOUT_S = 9, 5
LAYOUT = ["parallelism.expert_parallel_degree=2", "optimizer.schedule=constant", "train.validation_interval=0",
          "checkpoint.model_interval=0", "checkpoint.interval=1", "metrics.tensorboard=false"]
# The fault point of each part of a save, the passes of it that a rank has in a save, and whether every rank passes it
# or only the first.
PHASES = {
    "copying": ("checkpoint.copy", 40, True),
    "writing": ("checkpoint.piece", 40, True),
    "syncing": ("checkpoint.sync", 2, True),
    "committing": ("checkpoint.commit", 4, False),
    "deleting": ("checkpoint.remove", 6, False),
}


def pieces_of(folder):
    """The pieces of a checkpoint with their hashes, without the names of files."""
    manifest = json.loads((folder / "manifest.json").read_text())
    return sorted(json.dumps([piece[key] for key in sorted(piece) if key != "file"]) for piece in manifest["pieces"])


def armed(run, ranks, phase, draw, script):
    """Returns a program that is killed (kill -9) in the phase of one of its next saves, on one rank or on all."""
    point, passes, on_all = PHASES[phase]
    fault = f"{point}:kill@{draw.randint(1, 2 * passes)}"
    victim = draw.choice([*(range(ranks) if on_all else [0]), "all"])
    return with_fault_on(run.program, victim, fault, script), f"{fault} on {victim}"


def kill_often(any_launcher, program, data, folder, ranks, phases, draw):
    """Kills a run once in each of `phases`, and returns how often that happened in each."""
    run = RankRun(program, folder, data, "run")
    counts, done, had_one = collections.Counter(), "", False
    tool = run.program.with_name("checkpoint_tool")
    for phase in phases:
        script, what = armed(run, ranks, phase, draw, folder / "armed")
        code, out, err, _ = any_launcher.run(ranks, script, "train", *run.words([*LAYOUT, "train.steps=100000"]))
        assert code != 0, (what, err[-3000:])
        counts[phase] += 1
        done += f"{what}\n"
        has_one = any((run.folder / "checkpoints").glob("step-*"))  # none yet if the first saves are killed
        assert has_one or not had_one, (done, err[-3000:])
        had_one = has_one
    steps = max((int(step["step"]) for step in run.metrics()), default=0) + 2
    run.on(any_launcher, ranks, *LAYOUT, f"train.steps={steps}")
    whole = RankRun(program, folder, data, "whole").on(any_launcher, ranks, *LAYOUT, f"train.steps={steps}",
                                                       "checkpoint.async=false")
    newest = {step["step"]: [step.get(key) for key in KEYS] for step in run.metrics()}
    assert newest == {step["step"]: [step.get(key) for key in KEYS] for step in whole.metrics()}, done
    assert pieces_of(run.checkpoint(steps)) == pieces_of(whole.checkpoint(steps)), done
    assert [name for name in os.listdir(run.folder / "checkpoints") if name.startswith(".")] == [], done
    return counts


def test_runs_that_are_killed_while_they_save_continue_with_the_same_bits(any_launcher, program, data, tmp_path):
    draw = random.Random(20)
    phases = list(PHASES)
    draw.shuffle(phases)
    counts = kill_often(any_launcher, program, data, tmp_path, 2, phases, draw)
    print("killed while", dict(counts))
    assert all(counts[phase] >= 1 for phase in PHASES)


@pytest.mark.slow
def test_two_hundred_kills_in_saves_lose_nothing(any_launcher, program, data, tmp_path):
    draw = random.Random(200)
    phases = [phase for phase in PHASES for _ in range(40)]
    draw.shuffle(phases)
    counts = collections.Counter()
    for part in range(5):
        folder = tmp_path / str(part)
        folder.mkdir()
        counts += kill_often(any_launcher, program, data, folder, 4, phases[part::5], draw)
        shutil.rmtree(folder)
    print("killed while", dict(counts))
    assert all(counts[phase] >= 40 for phase in PHASES)


def test_a_disk_that_stalls_for_longer_than_every_timeout_stops_no_step(any_launcher, program, data, tmp_path):
    run = RankRun(program, tmp_path, data, "run")
    script = with_fault_on(run.program, 1, f"checkpoint.sync:stall{STALL_S}@1", tmp_path / "stalls")
    real, run.program = run.program, script
    run.on(any_launcher, 2, "checkpoint.interval=2", "checkpoint.model_interval=0", "checkpoint.if_still_saving=skip",
           f"parallelism.collective_timeout_s={TIMEOUT_S}", "train.steps=20", "train.validation_interval=0")
    events = [json.loads(line) for line in (run.folder / "events.jsonl").read_text().splitlines()]
    saves = {event["step"]: event for event in events if event["event"] == "save"}
    skipped = [event for event in events if event["event"] == "save_skipped"]
    assert saves[2]["seconds"] >= STALL_S and saves[2]["stopped_seconds"] < TIMEOUT_S < STALL_S, events
    # The steps were done while the disk stalled: their checkpoints were skipped before the first was on disk.
    assert [event["step"] for event in skipped] == list(range(4, 20, 2)), events
    assert skipped[-1]["time"] < saves[2]["time"] and 20 in saves, events
    run.program = real
    assert len(run.metrics()) == 20
