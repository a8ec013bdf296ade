"""Local checkpoints: a run that was killed continues from what its nodes keep, unless a node and its partner are lost.

The nodes are two or four of one machine (topology.ranks_per_node): each looks into a separate folder, and files move by messages.
"""
import collections
import json
import random
import shutil

import pytest

from launchers import with_fault_on
from test_killed_saves import pieces_of
from test_runs import KEYS, RankRun, data  # noqa: F401

RANKS = 4
STEPS, KILLED = 200, 150  # a step takes milliseconds, a local checkpoint a tenth of a second
PHASES = {"copying": ("checkpoint.copy", 30), "writing": ("checkpoint.piece", 40), "syncing": ("checkpoint.sync", 2),
          "committing and removing": ("checkpoint.local_commit", 3)}


class LocalRun(RankRun):
    """A run of four ranks whose checkpoints are local until its end."""

    def __init__(self, program, folder, data, name):
        super().__init__(program, folder, data, name)
        self.local = folder / f"local-{name}"

    def layout(self, *more, per_node=2):
        return ["optimizer.schedule=constant", "train.validation_interval=0", "checkpoint.model_interval=0",
                "metrics.tensorboard=false", "checkpoint.interval=100000", f"checkpoint.local_dir={self.local}",
                "checkpoint.local_interval=1", f"topology.ranks_per_node={per_node}", f"train.steps={STEPS}", *more]

    def killed(self, any_launcher, fault, *more, per_node=2):
        """Runs until the fault ends it."""
        code, out, err, _ = any_launcher.run(RANKS, self.program, "train", *self.words(self.layout(*more, per_node=per_node)),
                                         env={"ATHANOR_FAULT": fault})
        assert code != 0, err
        self.said = err
        return self

    def nodes(self):
        return sorted(self.local.glob("athanor-*/*"))

    def events(self, name):
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def newest_local(self):
        return max((int(step.name[5:]) for step in self.local.glob("athanor-*/*/attempt-*/step-*")), default=0)

    def newest_everywhere(self):
        """Removes a local checkpoint that the kill left on a part of the nodes; the one before it is on all of them."""
        newest = list(self.local.glob(f"athanor-*/*/attempt-*/step-{self.newest_local():08}"))
        if len(newest) < len(self.nodes()):
            for folder in newest:
                shutil.rmtree(folder)
        return self.newest_local()


@pytest.fixture(scope="module")
def whole(any_launcher, program, data, tmp_path_factory):
    """The run that nothing stops."""
    run = LocalRun(program, tmp_path_factory.mktemp("whole"), data, "whole")
    run.on(any_launcher, RANKS, *run.layout("checkpoint.local_interval=0"))
    return run


def assert_same_bits(run, whole):
    newest = {step["step"]: [step.get(key) for key in KEYS] for step in run.metrics()}
    assert newest == {step["step"]: [step.get(key) for key in KEYS] for step in whole.metrics()}
    assert pieces_of(run.checkpoint(STEPS)) == pieces_of(whole.checkpoint(STEPS))


@pytest.mark.parametrize("lost", ["nothing", "a node", "a file"])
def test_a_killed_run_continues_from_what_its_nodes_keep(any_launcher, program, data, tmp_path, whole, lost):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}")
    kept = run.newest_everywhere()
    assert 0 < kept <= KILLED and len(run.nodes()) == 2, run.said
    where = json.loads((run.folder / "where.json").read_text())
    assert [(node["ranks"], node["partner"]) for node in where["nodes"]] == [
        ([0, 1], run.nodes()[1].name), ([2, 3], run.nodes()[0].name)]
    if lost == "a node":
        shutil.rmtree(run.nodes()[1])
    if lost == "a file":
        (run.nodes()[0] / "attempt-001" / f"step-{kept:08}" / "pieces-00000-00000.safetensors").unlink()
    run.on(any_launcher, RANKS, *run.layout())
    assert f"resumed from the local checkpoint {run.nodes()[0] if run.nodes() else ''}" in run.said, run.said
    assert f"at step {kept}" in run.said
    assert ("came from other nodes to" in run.said) == (lost != "nothing"), run.said
    assert_same_bits(run, whole)
    assert not run.local.exists() or list(run.local.iterdir()) == []  # the end gives the memory back
    assert run.events("resume")[0]["step"] == kept and run.events("resume")[0]["moments"] == "kept"


def test_a_run_continues_from_local_checkpoints_in_another_layout(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}", per_node=1)
    assert len(run.nodes()) == 4
    kept = run.newest_everywhere()
    shutil.rmtree(run.nodes()[2])
    run.on(any_launcher, RANKS, *run.layout("parallelism.tensor_parallel_degree=2", per_node=1))
    assert f"at step {kept}" in run.said and "came from other nodes to" in run.said, run.said
    steps = {step["step"]: step for step in run.metrics()}
    for step in whole.metrics()[kept:kept + 5]:  # the sums of the other layout grow apart with the steps
        assert steps[step["step"]]["loss"] == pytest.approx(step["loss"], rel=2e-4), step["step"]


def test_without_a_node_and_its_partner_the_older_checkpoint_of_the_run_is_taken(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}", "checkpoint.interval=50")
    assert run.newest_local() > 0
    shutil.rmtree(run.local)
    run.on(any_launcher, RANKS, *run.layout())
    assert "resumed from" in run.said and "/checkpoints/step-00000100 at step 100" in run.said, run.said
    assert_same_bits(run, whole)


def test_a_lost_pair_is_named(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}", per_node=1)
    kept = run.newest_everywhere()
    shutil.rmtree(run.nodes()[1])
    shutil.rmtree(run.nodes()[1])
    run.on(any_launcher, RANKS, *run.layout(per_node=1))
    assert (f"the local checkpoint of step {kept} is not whole: the pieces of 1 of its 4 ranks are on no node, the first of them "
            "rank 1") in run.said, run.said
    assert run.events("start")[-1]["step"] == 0
    assert_same_bits(run, whole)


def test_going_back_leaves_the_other_branch_where_it_is_and_is_done_once(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}", "checkpoint.interval=50")
    assert run.newest_local() > 50
    back = [f"checkpoint.resume={run.checkpoint(50)}"]
    run.killed(any_launcher, "train.after_step:kill@80", *back)
    assert "step-00000050 at step 50" in run.said, run.said
    kept = run.newest_local()
    run.on(any_launcher, RANKS, *run.layout(*back))
    assert 50 <= kept <= 130 and f"at step {kept}" in run.said, run.said
    assert_same_bits(run, whole)


def flip(file):
    text = bytearray(file.read_bytes())
    text[-3] ^= 1
    file.write_bytes(text)


@pytest.mark.parametrize("damaged,serves", [("pieces-00003-00000.safetensors", False), ("pieces-00003.json", False),
                                            ("one pieces-00000.json", True), ("missing pieces-00000.json", True)])
def test_a_damaged_local_checkpoint_leaves_no_trace_in_the_run_that_begins_again(any_launcher, program, data, tmp_path, whole,
                                                                                 damaged, serves):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}")
    how, _, name = damaged.rpartition(" ")
    files = sorted(run.local.glob(f"athanor-*/*/attempt-*/*/{name}"))
    assert len(files) >= 2
    for file in files:
        if how != "missing" and not (how == "one" and file != files[0]):
            flip(file)
    if how == "missing":
        files[0].unlink()
    run.on(any_launcher, RANKS, *run.layout())
    assert ("resumed from the local checkpoint" in run.said) == serves, run.said
    assert ("passing over a checkpoint" in run.said) != serves, run.said
    assert_same_bits(run, whole)


def test_a_copy_takes_the_place_of_a_damaged_file(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}")
    kept = run.newest_everywhere()
    node = run.nodes()[1].name
    flip(run.nodes()[1] / "attempt-001" / f"step-{kept:08}" / "pieces-00003-00000.safetensors")
    run.on(any_launcher, RANKS, *run.layout())
    assert f"the local checkpoint of step {kept}: a file of node {node}: " in run.said, run.said
    assert "pieces-00003-00000.safetensors" in run.said and "another copy takes its place" in run.said, run.said
    assert "resumed from the local checkpoint" in run.said and f"at step {kept}" in run.said, run.said
    assert_same_bits(run, whole)


def test_folders_of_nodes_with_other_names_are_used_and_removed_when_the_next_one_is_whole(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, "checkpoint.local_commit:kill@6", per_node=1)  # the third
    kept, before = run.newest_everywhere(), run.nodes()
    assert kept > 0 and len(before) == 4
    shutil.rmtree(before[3])
    listed = any_launcher.run(1, run.program, "checkpoint", "ls", str(run.folder))[1]
    assert f"recorded on 4 nodes ({', '.join(node.name for node in before)}) in {before[0].parent}" in listed, listed
    assert f"on this host: step {kept} of attempt 1, whole" in listed, listed
    run.killed(any_launcher, "checkpoint.local_commit:kill@4", per_node=2)  # the second
    assert f"at step {kept}" in run.said and "came from other nodes to" in run.said, run.said
    assert [node.name for node in run.nodes()] == [before[0].name, before[1].name]
    kept = run.newest_everywhere()
    run.killed(any_launcher, "checkpoint.copy:kill@1", per_node=4)
    assert f"at step {kept}" in run.said, run.said
    assert {before[0].name, before[1].name} <= {node.name for node in run.nodes()}
    run.on(any_launcher, RANKS, *run.layout(per_node=4))
    assert_same_bits(run, whole)
    assert list(run.local.iterdir()) == []


def test_a_run_continues_from_local_checkpoints_whatever_else_it_was_told_to_begin_with(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}")
    kept = run.newest_local()
    run.on(any_launcher, RANKS, *run.layout(f"checkpoint.resume={whole.checkpoint(STEPS)}"))
    assert f"at step {kept}" in run.said, run.said
    assert f"checkpoint.resume ({whole.checkpoint(STEPS)}) was passed over: this run has continued since" in run.said, run.said
    assert_same_bits(run, whole)


def test_a_run_whose_checkpoints_were_deleted_continues_from_local_ones_and_is_refused_without_them(any_launcher, program, data, tmp_path,
                                                                                                 whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}", "checkpoint.interval=50")
    kept = run.newest_local()
    shutil.rmtree(run.folder / "checkpoints")
    shutil.copytree(run.local, tmp_path / "kept")
    shutil.rmtree(run.local)
    run.on(any_launcher, RANKS, *run.layout(), expect=2)
    assert "belongs to a run whose checkpoints are gone" in run.said, run.said
    shutil.copytree(tmp_path / "kept", run.local)
    run.on(any_launcher, RANKS, *run.layout())
    assert f"at step {kept}" in run.said, run.said
    assert_same_bits(run, whole)


def test_a_local_checkpoint_is_better_than_a_model_and_than_a_damaged_checkpoint(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}",
                                                          "checkpoint.model_interval=149")
    kept = run.newest_local()
    run.on(any_launcher, RANKS, *run.layout())
    assert f"at step {kept}" in run.said and "FRESH" not in run.said, run.said
    assert_same_bits(run, whole)
    other = LocalRun(program, tmp_path, data, "other").killed(any_launcher, f"train.after_step:kill@{KILLED}", "checkpoint.interval=40")
    kept, newest = other.newest_local(), sorted((other.folder / "checkpoints").glob("step-*"))[-1]
    # A newer one in the run's folder is damaged: an older local checkpoint serves.
    shutil.copytree(newest, other.checkpoint(160))
    flip(other.checkpoint(160) / "manifest.json")
    other.on(any_launcher, RANKS, *other.layout())
    assert kept <= int(newest.name[5:]) or f"at step {kept}" in other.said, other.said
    assert_same_bits(other, whole)


def test_another_folder_for_local_checkpoints_is_used_from_the_first_whole_one_on(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}")
    kept, old = run.newest_local(), run.local
    run.local = tmp_path / "elsewhere"
    run.killed(any_launcher, "checkpoint.copy:kill@1")
    run.killed(any_launcher, f"train.after_step:kill@{(STEPS - kept) // 2}")
    assert f"at step {kept}" in run.said, run.said
    run.on(any_launcher, RANKS, *run.layout())
    assert_same_bits(run, whole)
    for folder in old, run.local:
        assert not folder.exists() or list(folder.iterdir()) == []


def test_a_start_without_local_checkpoints_takes_the_last_one_and_removes_it_at_its_end(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run").killed(any_launcher, f"train.after_step:kill@{KILLED}")
    kept = run.newest_local()
    run.on(any_launcher, RANKS, *run.layout("checkpoint.local_interval=0"))
    assert f"at step {kept}" in run.said and list(run.local.iterdir()) == [], run.said
    assert_same_bits(run, whole)


@pytest.mark.parametrize("setting,said", [
    ("checkpoint.local_dir=", "checkpoint.local_interval (1) needs checkpoint.local_dir"),
    ("checkpoint.local_dir=local", "checkpoint.local_dir (local) must begin with /"),
    ("checkpoint.local_dir=CONFIG/x", "/x) cannot be used on node "),
    ("checkpoint.local_dir=/proc/nowhere", "has 0B free on node"),
    ("checkpoint.async=false", "needs checkpoint.async"),
    ("checkpoint.interval=0", "and a checkpoint.interval that is not 0"),
])
def test_settings_that_cannot_work_are_refused_before_anything_changes(any_launcher, program, data, tmp_path, setting, said):
    run = LocalRun(program, tmp_path, data, "run")
    run.on(any_launcher, 2, *run.layout(), setting.replace("CONFIG", str(run.config)), expect=2)
    assert said in run.said, run.said
    assert not run.folder.exists()


def kill_often(any_launcher, program, data, folder, phases, draw):
    run = LocalRun(program, folder, data, "run")
    counts = collections.Counter()
    done, before = "", 0
    for phase in phases:
        point, passes = PHASES[phase]
        victim = draw.choice([0, 1, 2, 3, "all"])
        # Only the first rank of a node passes the last phase.
        if point == "checkpoint.local_commit" and victim in (1, 3):
            victim -= 1
        fault = f"{point}:kill@{draw.randint(1, 2 * passes)}"
        armed = with_fault_on(run.program, victim, fault, folder / "armed")
        code, out, err, _ = any_launcher.run(RANKS, armed, "train", *run.words(run.layout("train.steps=100000")))
        assert code != 0, (fault, err[-3000:])
        counts[phase] += 1
        done += f"{fault} on {victim}\n"
        resumed = [event["step"] for event in run.events("resume")]
        assert resumed == sorted(resumed) and (not resumed or resumed[-1] >= before), (done, err[-3000:])
        before = resumed[-1] if resumed else before
        newest = list(run.local.glob(f"athanor-*/*/attempt-*/step-{run.newest_local():08}"))
        if draw.random() < 0.5 and len(newest) == 2 and newest[0].parent.name == newest[1].parent.name:  # copies are complete
            shutil.rmtree(draw.choice(run.nodes()))
            done += "a node lost\n"
    assert before > 0
    steps = run.newest_local() + 2
    run.on(any_launcher, RANKS, *run.layout(f"train.steps={steps}"))
    other = LocalRun(program, folder, data, "other").on(any_launcher, RANKS, *run.layout(f"train.steps={steps}",
                                                                                    "checkpoint.local_interval=0"))
    assert pieces_of(run.checkpoint(steps)) == pieces_of(other.checkpoint(steps)), done
    counts["nodes lost"] = done.count("a node lost")
    return counts


def test_kills_in_local_checkpoints_never_cost_the_one_before(any_launcher, program, data, tmp_path, whole):
    draw = random.Random(4)
    phases = [phase for phase in PHASES for _ in range(2)]
    draw.shuffle(phases)
    print("killed while", dict(kill_often(any_launcher, program, data, tmp_path, phases, draw)))
