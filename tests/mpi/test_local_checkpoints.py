"""Local checkpoints: a run that was killed continues from what its nodes keep, unless a node and its partner are lost.

The nodes are two or four of one machine (topology.ranks_per_node): each looks into a separate folder, and files move by messages.
Most tests take a run that was killed once for all of them, and copy it to where it was.
"""
import collections
import functools
import json
import random
import shutil

import pytest

from launchers import with_fault_on
from test_killed_saves import pieces_of
from test_runs import KEYS, RankRun, data  # noqa: F401

STEPS = 14
# A model waits for the local checkpoint that is being written. So those of steps 3 and 6 are whole when the run is killed, and a later one
# up to that of step 9, which begins then, is or is not; a full checkpoint of step 5 comes before all of these.
MODELS, KILLED, FULL = "checkpoint.model_interval=3", "train.after_step:kill@9", "checkpoint.interval=5"
WHOLE = range(6, 10)
PHASES = {"copying": ("checkpoint.copy", 30), "writing": ("checkpoint.piece", 40), "syncing": ("checkpoint.sync", 2),
          "committing and removing": ("checkpoint.local_commit", 3)}


@pytest.fixture(autouse=True)
def no_board(monkeypatch):
    """The processes of a board would outlive a run, whose folder the next test fills again."""
    monkeypatch.setenv("ATHANOR_BOARD", "off")


class LocalRun(RankRun):
    """A run on two nodes, or with `per_node=1` on as many as ranks, whose checkpoints are local until its end."""

    def __init__(self, program, folder, data, name, ranks=2):
        super().__init__(program, folder, data, name)
        self.local, self.ranks = folder / f"local-{name}", ranks

    def layout(self, *more, per_node=None):
        return ["optimizer.schedule=constant", "train.validation_interval=0", "checkpoint.model_interval=0",
                "metrics.tensorboard=false", "checkpoint.interval=100000", f"checkpoint.local_dir={self.local}",
                "checkpoint.local_interval=1", f"topology.ranks_per_node={per_node or self.ranks // 2}", f"train.steps={STEPS}", *more]

    def killed(self, any_launcher, fault, *more, per_node=None):
        """Runs until the fault ends it."""
        words = self.words(self.layout("train.steps=100000", MODELS, *more, per_node=per_node))
        code, out, err, _ = any_launcher.run(self.ranks, self.program, "train", *words, env={"ATHANOR_FAULT": fault})
        assert code != 0, err
        self.said = err
        return self

    def completed(self, any_launcher, *more, per_node=None, **options):
        return self.on(any_launcher, self.ranks, *self.layout(*more, per_node=per_node), **options)

    def forget_models(self):
        """Removes what the run has of the models that its killed starts saved to wait for local checkpoints."""
        shutil.rmtree(self.folder / "models")
        events = self.folder / "events.jsonl"
        events.write_text("".join(line for line in events.read_text().splitlines(keepends=True) if json.loads(line).get("kind") != "model"))

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
    """Returns a function from a number of ranks to their run that nothing stops."""
    @functools.cache
    def find(ranks):
        run = LocalRun(program, tmp_path_factory.mktemp("whole"), data, "whole", ranks)
        return run.completed(any_launcher, "checkpoint.local_interval=0")

    return find


@pytest.fixture(scope="module")
def killed(any_launcher, program, data, tmp_path_factory):
    """Returns a function that gives a run which was killed, of some ranks, with more settings. It is where it was when it was killed, since
    its checkpoints name its folder."""
    @functools.cache
    def kill(ranks, more, per_node):
        folder = tmp_path_factory.mktemp("killed")
        run = LocalRun(program, folder, data, "run", ranks).killed(any_launcher, KILLED, *more, per_node=per_node)
        for path in (run.folder, run.local):
            shutil.copytree(path, folder / "kept" / path.name)
        return run.folder.parent, run.said

    def find(ranks, *more, per_node=None, models=False):
        folder, said = kill(ranks, more, per_node)
        run = LocalRun(program, folder, data, "run", ranks)
        for path in (run.folder, run.local):
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(folder / "kept" / path.name, path)
        if not models:
            run.forget_models()
        run.said = said
        return run

    return find


def assert_same_bits(run, whole):
    whole = whole(run.ranks)
    newest = {step["step"]: [step.get(key) for key in KEYS] for step in run.metrics()}
    assert newest == {step["step"]: [step.get(key) for key in KEYS] for step in whole.metrics()}
    assert pieces_of(run.checkpoint(STEPS)) == pieces_of(whole.checkpoint(STEPS))


@pytest.mark.parametrize("lost, ranks", [("nothing", 2), ("a node", 4), ("a file", 2)])
def test_a_killed_run_continues_from_what_its_nodes_keep(any_launcher, killed, whole, lost, ranks):
    run = killed(ranks)
    kept = run.newest_everywhere()
    assert kept in WHOLE and len(run.nodes()) == 2, run.said
    where = json.loads((run.folder / "where.json").read_text())
    own = [list(range(ranks // 2)), list(range(ranks // 2, ranks))]
    assert [(node["ranks"], node["partner"]) for node in where["nodes"]] == [
        (own[0], run.nodes()[1].name), (own[1], run.nodes()[0].name)]
    if lost == "a node":
        shutil.rmtree(run.nodes()[1])
    if lost == "a file":
        (run.nodes()[0] / "attempt-001" / f"step-{kept:08}" / "pieces-00000-00000.safetensors").unlink()
    run.completed(any_launcher)
    assert f"resumed from the local checkpoint {run.nodes()[0] if run.nodes() else ''}" in run.said, run.said
    assert f"at step {kept}" in run.said
    assert ("came from other nodes to" in run.said) == (lost != "nothing"), run.said
    assert_same_bits(run, whole)
    assert not run.local.exists() or list(run.local.iterdir()) == []  # the end gives the memory back
    assert run.events("resume")[0]["step"] == kept and run.events("resume")[0]["moments"] == "kept"


def test_a_run_continues_from_local_checkpoints_in_another_layout(any_launcher, killed, whole):
    run = killed(4, per_node=1)
    assert len(run.nodes()) == 4
    kept = run.newest_everywhere()
    shutil.rmtree(run.nodes()[2])
    run.completed(any_launcher, "parallelism.tensor_parallel_degree=2", per_node=1)
    assert f"at step {kept}" in run.said and "came from other nodes to" in run.said, run.said
    steps = {step["step"]: step for step in run.metrics()}
    for step in whole(4).metrics()[kept:kept + 5]:  # the sums of the other layout grow apart with the steps
        assert steps[step["step"]]["loss"] == pytest.approx(step["loss"], rel=2e-4), step["step"]


def test_without_a_node_and_its_partner_the_older_checkpoint_of_the_run_is_taken(any_launcher, killed, whole):
    run = killed(2, FULL)
    assert run.newest_local() > 5
    shutil.rmtree(run.local)
    run.completed(any_launcher)
    assert "resumed from" in run.said and "/checkpoints/step-00000005 at step 5" in run.said, run.said
    assert_same_bits(run, whole)


def test_a_lost_pair_is_named(any_launcher, killed, whole):
    run = killed(4, per_node=1)
    kept = run.newest_everywhere()
    shutil.rmtree(run.nodes()[1])
    shutil.rmtree(run.nodes()[1])
    run.completed(any_launcher, per_node=1)
    assert (f"the local checkpoint of step {kept} is not whole: the pieces of 1 of its 4 ranks are on no node, the first of them "
            "rank 1") in run.said, run.said
    assert run.events("start")[-1]["step"] == 0
    assert_same_bits(run, whole)


def test_going_back_leaves_the_other_branch_where_it_is_and_is_done_once(any_launcher, killed, whole):
    run = killed(2, FULL)
    assert run.newest_local() > 5
    back = [f"checkpoint.resume={run.checkpoint(5)}"]
    run.killed(any_launcher, "train.after_step:kill@4", *back)  # after step 9
    assert "step-00000005 at step 5" in run.said, run.said
    kept = run.newest_local()
    run.forget_models()
    run.completed(any_launcher, *back)
    assert kept in WHOLE and f"at step {kept}" in run.said, run.said
    assert_same_bits(run, whole)


def flip(file):
    text = bytearray(file.read_bytes())
    text[-3] ^= 1
    file.write_bytes(text)


@pytest.mark.parametrize("damaged,serves", [("pieces-00001-00000.safetensors", False), ("pieces-00001.json", False),
                                            ("one pieces-00000.json", True), ("missing pieces-00000.json", True)])
def test_a_damaged_local_checkpoint_leaves_no_trace_in_the_run_that_begins_again(any_launcher, killed, whole, damaged, serves):
    run = killed(2)
    how, _, name = damaged.rpartition(" ")
    files = sorted(run.local.glob(f"athanor-*/*/attempt-*/*/{name}"))
    assert len(files) >= 2
    for file in files:
        if how != "missing" and not (how == "one" and file != files[0]):
            flip(file)
    if how == "missing":
        files[0].unlink()
    run.completed(any_launcher)
    assert ("resumed from the local checkpoint" in run.said) == serves, run.said
    assert ("passing over a checkpoint" in run.said) != serves, run.said
    assert_same_bits(run, whole)


def test_a_copy_takes_the_place_of_a_damaged_file(any_launcher, killed, whole):
    run = killed(2)
    kept = run.newest_everywhere()
    node = run.nodes()[1].name
    flip(run.nodes()[1] / "attempt-001" / f"step-{kept:08}" / "pieces-00001-00000.safetensors")
    run.completed(any_launcher)
    assert f"the local checkpoint of step {kept}: a file of node {node}: " in run.said, run.said
    assert "pieces-00001-00000.safetensors" in run.said and "another copy takes its place" in run.said, run.said
    assert "resumed from the local checkpoint" in run.said and f"at step {kept}" in run.said, run.said
    assert_same_bits(run, whole)


def test_folders_of_nodes_with_other_names_are_used_and_removed_when_the_next_one_is_whole(any_launcher, program, data, tmp_path, whole):
    run = LocalRun(program, tmp_path, data, "run", 4).killed(any_launcher, "checkpoint.local_commit:kill@6", per_node=1)  # the third
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
    run.forget_models()
    run.completed(any_launcher, per_node=4)
    assert_same_bits(run, whole)
    assert list(run.local.iterdir()) == []


def test_a_run_continues_from_local_checkpoints_whatever_else_it_was_told_to_begin_with(any_launcher, killed, whole):
    run, other = killed(2), whole(2).checkpoint(STEPS)
    kept = run.newest_local()
    run.completed(any_launcher, f"checkpoint.resume={other}")
    assert f"at step {kept}" in run.said, run.said
    assert f"checkpoint.resume ({other}) was passed over: this run has continued since" in run.said, run.said
    assert_same_bits(run, whole)


def test_a_run_whose_checkpoints_were_deleted_continues_from_local_ones_and_is_refused_without_them(any_launcher, killed, tmp_path, whole):
    run = killed(2, FULL)
    kept = run.newest_local()
    shutil.rmtree(run.folder / "checkpoints")
    shutil.copytree(run.local, tmp_path / "kept")
    shutil.rmtree(run.local)
    run.completed(any_launcher, expect=2)
    assert "belongs to a run whose checkpoints are gone" in run.said, run.said
    shutil.copytree(tmp_path / "kept", run.local)
    run.completed(any_launcher)
    assert f"at step {kept}" in run.said, run.said
    assert_same_bits(run, whole)


def test_a_local_checkpoint_is_better_than_a_model_and_than_a_damaged_checkpoint(any_launcher, killed, whole):
    run = killed(2, models=True)
    kept = run.newest_local()
    assert (run.folder / "models" / "step-00000009").exists()
    run.completed(any_launcher)
    assert f"at step {kept}" in run.said and "FRESH" not in run.said, run.said
    assert_same_bits(run, whole)
    other = killed(2, FULL)
    kept = other.newest_local()
    # A newer one in the run's folder is damaged: an older local checkpoint serves.
    shutil.copytree(other.checkpoint(5), other.checkpoint(12))
    flip(other.checkpoint(12) / "manifest.json")
    other.completed(any_launcher)
    assert f"at step {kept}" in other.said, other.said
    assert_same_bits(other, whole)


def test_another_folder_for_local_checkpoints_is_used_from_the_first_whole_one_on(any_launcher, killed, tmp_path, whole):
    run = killed(2)
    kept, old = run.newest_local(), run.local
    run.local = tmp_path / "elsewhere"
    run.killed(any_launcher, "checkpoint.copy:kill@1")
    run.killed(any_launcher, "train.after_step:kill@5")  # the first one there is whole
    assert f"at step {kept}" in run.said, run.said
    run.forget_models()
    run.completed(any_launcher)
    assert_same_bits(run, whole)
    for folder in old, run.local:
        assert not folder.exists() or list(folder.iterdir()) == []


def test_a_start_without_local_checkpoints_takes_the_last_one_and_removes_it_at_its_end(any_launcher, killed, whole):
    run = killed(2)
    kept = run.newest_local()
    run.completed(any_launcher, "checkpoint.local_interval=0")
    assert f"at step {kept}" in run.said and list(run.local.iterdir()) == [], run.said
    assert_same_bits(run, whole)


@pytest.mark.parametrize("ranks,setting,said", [
    (1, "checkpoint.local_dir=", "checkpoint.local_interval (1) needs checkpoint.local_dir"),
    (1, "checkpoint.local_dir=local", "checkpoint.local_dir (local) must begin with /"),
    (2, "checkpoint.local_dir=CONFIG/x", "/x) cannot be used on node "),
    (2, "checkpoint.local_dir=/proc/nowhere", "has 0B free on node"),
    (1, "checkpoint.async=false", "needs checkpoint.async"),
    (1, "checkpoint.interval=0", "and a checkpoint.interval that is not 0"),
])
def test_settings_that_cannot_work_are_refused_before_anything_changes(any_launcher, program, data, tmp_path, ranks, setting, said):
    run = LocalRun(program, tmp_path, data, "run")
    run.on(any_launcher, ranks, *run.layout(), setting.replace("CONFIG", str(run.config)), expect=2)
    assert said in run.said, run.said
    assert not run.folder.exists()


def kill_often(any_launcher, program, data, folder, ranks, phases, draw):
    run = LocalRun(program, folder, data, "run", ranks)
    per_node = ranks // 2
    counts = collections.Counter()
    done, before = "", 0
    for phase in phases:
        point, passes = PHASES[phase]
        victim = draw.choice([*range(ranks), "all"])
        # Only the first rank of a node passes the last phase.
        if point == "checkpoint.local_commit" and victim != "all":
            victim -= victim % per_node
        fault = f"{point}:kill@{draw.randint(1, 2 * passes)}"
        armed = with_fault_on(run.program, victim, fault, folder / "armed")
        code, out, err, _ = any_launcher.run(ranks, armed, "train", *run.words(run.layout("train.steps=100000")))
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
    assert before > 0, done
    steps = run.newest_local() + 2
    run.completed(any_launcher, f"train.steps={steps}")
    other = LocalRun(program, folder, data, "other", ranks).completed(any_launcher, f"train.steps={steps}", "checkpoint.local_interval=0")
    assert pieces_of(run.checkpoint(steps)) == pieces_of(other.checkpoint(steps)), done
    counts["nodes lost"] = done.count("a node lost")
    return counts


# `make test` kills once in each phase.
@pytest.mark.parametrize("ranks,times", [(2, 1), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_kills_in_local_checkpoints_never_cost_the_one_before(any_launcher, program, data, tmp_path, ranks, times):
    draw = random.Random(4)
    phases = [phase for phase in PHASES for _ in range(times)]
    draw.shuffle(phases)
    print("killed while", dict(kill_often(any_launcher, program, data, tmp_path, ranks, phases, draw)))
