"""Evaluation during training: the training keeps its bits, scores are those of `athanor eval`, and rules warn or stop with code 77."""
import json
import math
import subprocess
import time

import pytest
from gate_rows import write_rows
from runs import ENDLESS, Run, events, make_data
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("gate"))


@pytest.fixture(scope="module")
def pair(athanor, data, gate, tmp_path_factory):
    """The same sparse run without and with evaluation."""
    runs = [Run(athanor, tmp_path_factory.mktemp(name), data, "olmoe") for name in ("plain", "evaluated")]
    base = ["train.dtype=float32", "checkpoint.keep=9", "checkpoint.interval=2"]
    runs[0].train(*base)
    runs[0].said = ""
    runs[1].said = runs[1].train(*base, *gate, 'eval.warn_if=["texts > 2","words.acc_norm < 0"]').stderr
    return runs


def rules(*rules, of="stop_if"):
    return f"eval.{of}={json.dumps(rules)}"


def test_training_has_the_same_bits_with_and_without_evaluation(pair):
    plain, evaluated = pair
    assert plain.numbers() == evaluated.numbers()
    for step in (4, 6, 8):
        assert plain.hashes(step) == evaluated.hashes(step)


def test_scores_are_those_of_eval_on_the_checkpoint_of_the_step(athanor, pair, gate, tmp_path):
    _, run = pair
    tasks, rows = (next(part.split("=", 1)[1] for part in gate if part.startswith(name)) for name in ("eval.include", "eval.data"))
    for step in (4, 8):
        out = tmp_path / f"{step}.json"
        athanor.run("eval", run.folder / "checkpoints" / f"step-{step:08}", "--tasks", "words,texts", "--include-path", json.loads(tasks)[0],
                    "--data", rows, "--batch-tokens", 256, "--dtype", "float32", "--out", out)
        expected = json.loads(out.read_text())
        written = json.loads((run.folder / "evals" / f"step-{step:08}.json").read_text())
        assert written["n-samples"] == expected["n-samples"] and written["configs"] == expected["configs"]
        assert written["athanor"]["step"] == step and written["athanor"]["tokens"] == run.metrics()[step - 1]["tokens_seen"]
        for task, metrics in expected["results"].items():
            for name, value in metrics.items():
                there = written["results"][task][name]
                # Both compute in float32, perhaps on other paths: no two candidates are that near.
                assert math.isclose(there, value, rel_tol=1e-5) if isinstance(value, float) else there == value, (task, name)


def test_results_are_in_metrics_events_tensorboard_and_the_log(pair):
    _, run = pair
    lines = {line["step"]: line.get("evaluation") for line in run.metrics()}
    assert [step for step, scores in lines.items() if scores] == [4, 8]
    assert set(lines[4]) == {"words", "texts"} and set(lines[4]["words"]) == {"acc", "acc_norm"}
    assert 0 <= lines[4]["words"]["acc"]["value"] <= 1 and lines[4]["words"]["acc"]["stderr"] > 0
    assert set(lines[4]["texts"]["bits_per_byte"]) == {"value"}
    evaluations = events(run, "evaluation")
    assert [(each["step"], each["results"]) for each in evaluations] == [(4, lines[4]), (8, lines[8])]
    assert all(each["documents"] == 46 and (run.folder / each["path"]).name.startswith("step-") for each in evaluations)
    board = EventAccumulator(str(run.folder / "tensorboard"))
    board.Reload()
    values = [(each.step, each.value) for each in board.Scalars("eval/texts/word_perplexity")]
    assert [step for step, _ in values] == [4, 8]
    assert math.isclose(values[1][1], lines[8]["texts"]["word_perplexity"]["value"], rel_tol=1e-6)
    assert "step 4: evaluated 46 documents" in run.said and "chance" in run.said and "0.2500" in run.said


def test_an_evaluation_before_the_first_step_gives_the_scores_that_training_starts_from(athanor, data, gate, pair, tmp_path):
    run = Run(athanor, tmp_path, data, "olmoe")
    words = ["train.dtype=float32", "checkpoint.keep=9", "checkpoint.interval=2", *gate, "eval.on_start=true"]
    # The rules hold at step 0, where there is nothing to stop yet.
    run.train(*words, rules("texts > 2 after 5 steps"), rules("texts > previous + 1e9", "texts > 2", of="warn_if"), check=False)
    plain = pair[0].numbers()
    assert run.numbers() == plain[: len(run.numbers())], "the training has the bits that it has without evaluations"
    assert [event["step"] for event in events(run, "evaluation")] == [0, 4, 8]
    assert [event["step"] for event in events(run, "rule") if event["rule"] == "texts > 2"] == [4, 8]
    first = json.loads((run.folder / "evals" / "step-00000000.json").read_text())
    assert (first["athanor"]["step"], first["athanor"]["tokens"]) == (0, 0)
    scores = events(run, "evaluation")[0]["results"]
    assert first["results"]["texts"]["word_perplexity,none"] == scores["texts"]["word_perplexity"]["value"]
    assert scores["texts"]["word_perplexity"] != events(run, "evaluation")[1]["results"]["texts"]["word_perplexity"]
    board = EventAccumulator(str(run.folder / "tensorboard"))
    board.Reload()
    assert [each.step for each in board.Scalars("eval/texts/word_perplexity")] == [0, 4, 8]
    assert [line["step"] for line in run.metrics()] == list(range(1, 9))
    before = (run.folder / "evals" / "step-00000000.json").read_bytes()
    run.train(*words, "train.steps=9", "eval.interval=1")  # continues, and does not evaluate its start again
    assert [event["step"] for event in events(run, "evaluation")] == [0, 4, 8, 9]
    assert (run.folder / "evals" / "step-00000000.json").read_bytes() == before


def test_a_rule_that_warns_does_so_once_for_each_evaluation(pair):
    _, run = pair
    assert run.said.count('the rule eval.warn_if "texts > 2" holds: texts word_perplexity is') == 2
    assert [(each["step"], each["rule"], each["action"]) for each in events(run, "rule")] == [(4, "texts > 2", "warn"), (8, "texts > 2", "warn")]
    assert all(each["value"] > each["limit"] == 2 for each in events(run, "rule"))


def test_a_rule_stops_the_run_which_saves_and_continues_when_it_is_changed(athanor, data, gate, tmp_path):
    run = Run(athanor, tmp_path, data, "llama")
    stop = rules("texts.bits_per_byte > 0.5 after 5 steps", "texts < 0")
    done = run.train(*gate, stop, "eval.interval=3", "checkpoint.interval=100", "checkpoint.model_interval=100", check=False)
    assert done.returncode == 77
    last = done.stderr.strip().splitlines()[-1]
    assert 'step 6: stopped by the rule eval.stop_if "texts.bits_per_byte > 0.5 after 5 steps": texts bits_per_byte is' in last
    assert "The step is saved" in last and "change or remove the rule" in last
    assert run.checkpoints() == ["step-00000006"] and (run.folder / "models" / "step-00000006" / "config.json").exists()
    assert len(run.metrics()) == 6
    assert [event["event"] for event in events(run)][-5:] == ["evaluation", "rule", "save", "save", "stop", "end"][-5:]
    assert (events(run)[-1]["exit_code"], events(run)[-1]["cause"]) == (77, "rule")
    done = run.train(*gate, stop, "eval.interval=1", check=False)  # the rule still holds
    assert done.returncode == 77 and len(run.metrics()) == 7
    run.train(*gate, "eval.interval=3")
    assert events(run)[-1]["exit_code"] == 0 and len(run.metrics()) == 8


def test_a_rule_that_holds_at_the_last_step_ends_the_complete_run_with_77(athanor, data, gate, tmp_path):
    run = Run(athanor, tmp_path, data, "llama")
    words = [*gate, "eval.interval=100", rules("texts > 1"), "train.steps=2", "optimizer.warmup_steps=1"]
    done = run.train(*words, check=False)
    assert done.returncode == 77 and "and the run is complete" in done.stderr
    assert run.train(*words).returncode == 0  # it has nothing to do


def test_best_and_previous_are_those_of_the_branch_over_restarts(athanor, data, gate, tmp_path):
    run = Run(athanor, tmp_path, data, "llama")
    words = [*gate, "eval.interval=2", rules("texts < previous after 4 steps", "texts < best + 1e9 after 6 steps", of="warn_if"),
             "checkpoint.interval=2", "checkpoint.keep=9"]
    run.train(*words, fault="train.after_step:kill@5", check=False)
    run.train(*words)
    seen = {each["step"]: each["results"]["texts"]["word_perplexity"]["value"] for each in events(run, "evaluation")}
    by_step = {(each["step"], each["rule"].split()[2]): each["limit"] for each in events(run, "rule")}
    assert by_step[8, "previous"] == seen[6] and math.isclose(by_step[8, "best"], min(seen[2], seen[4], seen[6]) + 1e9)
    before = len(events(run, "rule"))
    run.train(*words, f"checkpoint.resume={run.folder}/checkpoints/step-00000004", "optimizer.lr=0.001")
    again = [each for each in events(run, "rule")[before:] if each["rule"].startswith("texts < best")]
    assert [each["step"] for each in again] == [6, 8]
    assert math.isclose(again[0]["limit"], min(seen[2], seen[4]) + 1e9)  # that of step 8 is forgotten


def test_groups_have_scores_and_rules(athanor, data, gate, tmp_path):
    run = Run(athanor, tmp_path, data, "llama")
    done = run.train(*gate, "eval.tasks=[\"both\"]", "train.steps=2", "optimizer.warmup_steps=1", rules("both < chance + 9 stderr"), check=False)
    assert done.returncode == 77 and "both acc is" in done.stderr
    assert set(run.metrics()[-1]["evaluation"]) == {"both", "words", "other_words"}


WRONG = {
    "an unknown task": (["eval.tasks=[\"wrds\"]"], "did you mean \"words\"?"),
    "a rule of another task": ([rules("wurds < 1")], "eval.stop_if[0], character 1: eval.tasks has no \"wurds\" (did you mean \"words\"?)"),
    "an unknown metric": ([rules("words.ac < 1", of="warn_if")], "eval.warn_if[0], character 7: words has no metric \"ac\" (did you mean"),
    "a chance that is not known": ([rules("texts > chance")], "the chance of texts word_perplexity is not known"),
    "no rows": (["eval.data=nowhere"], "nowhere"),
    "no tasks": (["eval.tasks=[]"], "eval.interval (4) needs eval.tasks"),
    "a start without an interval": (["eval.interval=0", "eval.on_start=true"], "eval.on_start needs eval.interval"),
    "a broken limit": (["eval.limit=1.5"], "eval.limit: expected a whole number, or a share below 1"),
}


OF_RULES = ("a rule of another task", "an unknown metric", "a chance that is not known")  # score_rule_test refuses these too


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] if case in OF_RULES else []) for case in WRONG])
def test_what_is_wrong_is_refused_before_anything_changes(athanor, data, gate, tmp_path, case):
    overrides, message = WRONG[case]
    run = Run(athanor, tmp_path, data, "llama")
    done = run.train(*gate, *overrides, check=False)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert not run.folder.exists()


def test_a_wrong_row_is_refused_at_the_start_and_ends_a_run_with_80_until_it_is_mended(athanor, data, tmp_path):
    gate = write_rows(tmp_path)
    rows = tmp_path / "rows" / "words.jsonl"
    right = rows.read_text()
    run = Run(athanor, tmp_path, data, "llama")
    rows.write_text(right.replace('"answer"', '"anser"').replace('"anser"', '"answer"', 20))
    done = run.train(*gate, check=False)
    assert done.returncode == 2 and "words.jsonl:21" in done.stderr and not run.folder.exists(), done.stderr
    rows.write_text(right)
    words = [*gate, *ENDLESS, "checkpoint.interval=1000000", "eval.interval=1", "optimizer.warmup_steps=0"]
    settings = [part for override in words for part in ("--set", override)]
    process = subprocess.Popen([str(athanor.path), "train", str(run.config), *settings], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not ((run.folder / "events.jsonl").exists() and events_so_far(run)):
        time.sleep(0.05)
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(right.splitlines(keepends=True)[:9]))
    changed.rename(rows)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 80, said
    step = len(run.metrics())
    assert f"step {step}: its evaluation failed: " in said and "words.jsonl: it became shorter while it was read" in said and "is saved" in said
    assert run.checkpoints() == [f"step-{step:08}"]
    rows.write_text(right)
    run.train(*words, f"train.steps={step}")
    assert events(run, "evaluation")[-1]["step"] == step, "it is made up, though no step follows"


def events_so_far(run):
    return '"evaluation"' in (run.folder / "events.jsonl").read_text()


def ended_in_the_evaluation(run, words, step):
    """Trains until an evaluation of 4,006 documents begins, and ends the run there. Returns its exit code and what it told."""
    settings = [part for override in words for part in ("--set", override)]
    process = subprocess.Popen([str(run.athanor.path), "train", str(run.config), *settings], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert any(f"step {step}: evaluating 4,006 documents" in line for line in process.stderr)
    process.terminate()
    said = process.communicate(timeout=300)[1]
    return process.returncode, said


def test_a_signal_ends_an_evaluation_without_a_result(athanor, data, tmp_path):
    gate = write_rows(tmp_path, count=4000)
    run = Run(athanor, tmp_path, data, "llama")
    words = [*gate, *ENDLESS, "eval.interval=1"]
    code, said = ended_in_the_evaluation(run, words, step=1)
    assert code == 143, said
    assert "a signal has ended the evaluation" in said
    assert len(run.checkpoints()) == 1


def test_a_signal_during_the_evaluation_before_the_first_step_loses_no_start(athanor, data, tmp_path):
    gate = write_rows(tmp_path, count=4000)
    run = Run(athanor, tmp_path, data, "llama")
    words = [*gate, *ENDLESS, "eval.on_start=true", "eval.interval=100"]
    code, said = ended_in_the_evaluation(run, words, step=0)
    assert code == 143 and "a signal has ended the evaluation" in said, said
    assert run.checkpoints() == [] and not events(run, "evaluation")
    run.train(*words, "eval.limit=20", "train.steps=1", "optimizer.warmup_steps=1")
    assert [event["step"] for event in events(run, "evaluation")] == [0, 1]


def test_a_row_that_has_no_tokens_of_its_own_is_refused_at_the_start(athanor, data, tmp_path):
    gate = write_rows(tmp_path)
    rows = tmp_path / "rows" / "words.jsonl"
    row = json.loads(rows.read_text().splitlines()[0])
    rows.write_text(rows.read_text() + json.dumps(row | {"choices": [*row["choices"][:3], "the quick brown fox " * 40]}) + "\n")
    run = Run(athanor, tmp_path, data, "llama")
    done = run.train(*gate, check=False)
    assert done.returncode == 2 and "words, document 40, request 4: its continuation has" in done.stderr, done.stderr
    assert not run.folder.exists()


def test_an_evaluation_that_a_signal_ended_after_the_last_step_is_made_up_with_its_rules(athanor, data, tmp_path):
    gate = write_rows(tmp_path, count=4000)
    run = Run(athanor, tmp_path, data, "llama")
    words = [*gate, "train.steps=1", "optimizer.warmup_steps=1", "train.validation_interval=0", rules("words.acc > -1")]
    code, said = ended_in_the_evaluation(run, words, step=1)
    assert code == 143, said
    done = run.train(*words, "eval.limit=20", check=False)
    assert done.returncode == 77 and "and the run is complete" in done.stderr, done.stderr
    assert run.train(*words, "eval.limit=20", check=False).returncode == 0, "it is evaluated, and has nothing to do"
    assert [event["step"] for event in events(run, "evaluation")] == [1]
