"""`athanor eval` as a command: where results go, several models, what is there already, bad input, memory."""
import fcntl
import json
import os
import random
import shutil
import subprocess

import pytest
from runs import Run, make_data

WORDS = "the quick brown fox jumps over the lazy dog and runs from it".split()


@pytest.fixture(scope="module")
def case(athanor, tmp_path_factory):
    """A run with several checkpoints, and rows of two tasks."""
    folder = tmp_path_factory.mktemp("case")
    run = Run(athanor, folder, make_data(athanor, folder), "olmoe")
    run.train("model.initializer_range=0.15", "checkpoint.model_interval=3", "model.max_position_embeddings=64")
    draw = random.Random(1)
    rows = [{"id": str(i), "question": " ".join(draw.choices(WORDS, k=8)), "choices": {"text": draw.choices(WORDS, k=4), "label": list("ABCD")},
             "answerKey": draw.choice("ABCD")} for i in range(24)]
    data = folder / "rows"
    data.mkdir()
    for name in ("arc_easy", "arc_challenge"):
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder, run.folder, data


@pytest.fixture(scope="module")
def computed(athanor, case):
    """Results of the run's newest model on arc_easy. Tests change copies of them."""
    folder, run, data = case
    evaluate(athanor, run, "--tasks", "arc_easy", "--data", data, "--out", folder / "computed.json")
    return folder / "computed.json"


def evaluate(athanor, *words, check=True):
    return athanor.run("eval", *words, check=check)


def refused(athanor, *words):
    """The one line that a refusal is."""
    done = evaluate(athanor, *words, check=False)
    lines = [line for line in done.stderr.splitlines() if " E " in line or not line[:2].isdigit()]
    assert done.returncode == 2 and len(lines) == 1 and done.stdout == "", (done.returncode, done.stderr)
    return lines[0]


def test_results_of_a_run_go_to_its_evals_and_are_not_computed_again(athanor, case):
    _, run, data = case
    words = [run, "--tasks", "arc_easy,arc_challenge", "--data", data]
    first = evaluate(athanor, *words)
    (file,) = (run / "evals").iterdir()
    assert file.name.startswith("step-00000008-")
    results = json.loads(file.read_text())
    assert results["athanor"]["step"] == 8 and results["athanor"]["documents"] == 48 and results["results"]["arc_easy"]["sample_len"] == 24
    written = file.stat().st_mtime_ns
    again = evaluate(athanor, *words)
    assert again.stdout == first.stdout and "has the results already" in again.stderr
    assert file.stat().st_mtime_ns == written
    head, *lines = first.stdout.splitlines()
    assert head.split() == ["task", "metric", "chance", "step-00000008"]
    assert [line.split()[:3] for line in lines[:2]] == [["arc_easy", "acc", "0.2500"], ["arc_easy", "acc_norm", "0.2500"]]
    file.unlink()


def test_every_checkpoint_of_a_run_is_evaluated_from_the_oldest_on(athanor, case, tmp_path):
    _, run, data = case
    done = evaluate(athanor, run, "--every", "--tasks", "arc_easy", "--data", data, "--out", tmp_path / "all")
    steps = sorted(json.loads(file.read_text())["athanor"]["step"] for file in (tmp_path / "all").iterdir())
    assert steps == [3, 6, 8], "models after 3, 6 and 8 steps; of 6 and 8 there are also full checkpoints, and each step counts once"
    assert done.stdout


def test_earlier_results_are_shown_too(athanor, case, computed, tmp_path):
    _, run, data = case
    shutil.copy(computed, tmp_path / "mine.json")
    theirs = {"results": {"arc_easy": {"alias": "arc_easy", "acc,none": 0.75, "acc_stderr,none": 0.01}}}
    (tmp_path / "theirs.json").write_text(json.dumps(theirs))
    done = evaluate(athanor, run, "--tasks", "arc_easy", "--data", data, "--out", tmp_path / "mine.json", "--compare", tmp_path / "theirs.json")
    assert "0.7500 ± 0.0100" in done.stdout and "theirs" in done.stdout.splitlines()[0]


def test_a_limit_is_a_number_or_a_share_of_the_documents(athanor, case, tmp_path):
    _, run, data = case
    for limit, count in (("5", 5), ("0.3", 8)):
        out = tmp_path / f"{count}.json"
        evaluate(athanor, run, "--tasks", "arc_easy", "--data", data, "--limit", limit, "--out", out)
        assert json.loads(out.read_text())["results"]["arc_easy"]["sample_len"] == count


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "every"])
def test_bad_input_is_answered_in_one_line_and_changes_nothing(athanor, case, tmp_path, every):
    folder, run, data = case
    rows = (data / "arc_easy.jsonl").read_text().splitlines()

    def broken(name, change):
        made = tmp_path / name
        made.mkdir()
        row = json.loads(rows[3])
        change(row)
        (made / "arc_easy.jsonl").write_text("\n".join([*rows[:3], json.dumps(row), *rows[4:]]) + "\n")
        return made

    def ask(*words):
        return refused(athanor, *words, "--out", tmp_path / "out.json")

    template = tmp_path / "bad.yaml"
    template.write_text("task: bad\noutput_type: multiple_choice\ntest_split: test\ndoc_to_text: '{{question'\ndoc_to_target: 0\ndoc_to_choice: ['a', 'b']\n"
                        "athanor: {data: arc_easy}\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "arc_easy.jsonl").write_text("")
    long = broken("long", lambda row: row.update(question=" ".join(WORDS * 20)))
    if every:  # the tests of src/tasks and src/checkpoint refuse these too, or there is something like them below
        assert "boolq" in ask(run, "--tasks", "boolq", "--data", data)
        assert "--data" in refused(athanor, run, "--tasks", "arc_easy")
        assert "name a run folder" in refused(athanor, "--tasks", "arc_easy", "--data", data)
        assert "answerKey" in ask(run, "--tasks", "arc_easy", "--data", broken("answer", lambda row: row.update(answerKey="Z")))
        assert "arc_easy" in ask(run, "--tasks", "arc_easy", "--data", empty)
        assert "no such folder" in ask(tmp_path / "nowhere", "--tasks", "arc_easy", "--data", data)
        assert "not a run folder" in ask(data, "--tasks", "arc_easy", "--data", data)
        assert "doc_to_text" in ask(run, "--tasks", template, "--data", data)
    assert "arc_easy" in ask(run, "--tasks", "arc_esay", "--data", data)
    assert "--tasks" in refused(athanor, run, "--data", data)
    line = ask(run, "--tasks", "arc_easy", "--data", broken("field", lambda row: row.pop("question")))
    assert "question" in line and "4" in line
    assert "--no-truncation" in ask(run, "--tasks", "arc_easy", "--data", long, "--no-truncation")
    assert "more than the model" not in evaluate(athanor, run, "--tasks", "arc_easy", "--data", long, "--out", tmp_path / "cut.json").stderr
    assert "reads at most 64" in ask(run, "--tasks", "arc_easy", "--data", broken("answers", lambda row: row["choices"]["text"].__setitem__(0, " ".join(WORDS * 20))))
    assert "parallelism" in ask(run, "--tasks", "arc_easy", "--data", data, "--set", "train.steps=3")
    assert not (tmp_path / "out.json").exists()


def test_results_of_another_evaluation_are_not_overwritten(athanor, case, computed, tmp_path):
    _, run, data = case
    out = tmp_path / "out.json"
    shutil.copy(computed, out)
    before = out.read_bytes()
    assert "another evaluation" in refused(athanor, run, "--tasks", "arc_challenge", "--data", data, "--out", out)
    out.write_text("{}")
    assert "no results" in refused(athanor, run, "--tasks", "arc_easy", "--data", data, "--out", out)
    assert out.read_text() == "{}" and before


def test_a_run_that_is_being_written_is_evaluated_as_far_as_it_is(athanor, case, tmp_path):
    """A checkpoint that is not finished is not taken, and a run without one is refused in a line."""
    _, run, data = case
    copy = tmp_path / "run"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("models", "evals"))
    newest = sorted((copy / "checkpoints").iterdir())[-1]
    newest.rename(newest.with_name(newest.name + ".tmp"))
    out = tmp_path / "out.json"
    evaluate(athanor, copy, "--tasks", "arc_easy", "--data", data, "--out", out)
    assert json.loads(out.read_text())["athanor"]["step"] == 6
    for each in (copy / "checkpoints").iterdir():
        shutil.rmtree(each)
    assert "no checkpoint" in refused(athanor, copy, "--tasks", "arc_easy", "--data", data, "--out", tmp_path / "other.json")


def peak_bytes(athanor, words):
    """The largest resident memory of a call."""
    child = subprocess.Popen([str(athanor.path), "eval", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_maxrss * 1024


def test_memory_does_not_grow_with_the_number_of_documents(athanor, case, tmp_path):
    _, run, data = case
    rows = (data / "arc_easy.jsonl").read_text()
    peaks = []
    for times in (10, 100):
        many = tmp_path / f"{times}"
        many.mkdir()
        (many / "arc_easy.jsonl").write_text(rows * times)
        peaks.append(peak_bytes(athanor, [run, "--tasks", "arc_easy", "--data", many, "--window-tokens", 8000, "--out", many / "out.json"]))
    # Ten times the documents, 8,640 more requests: each would take more than 300 bytes.
    assert peaks[1] - peaks[0] < 8 * 2**20, peaks


# ---- What experiments have found --------------------------------------------------------------------------------------------


def write_task(file, target):
    file.write_text(f"task: mine\noutput_type: multiple_choice\ntest_split: test\ndoc_to_text: question\ndoc_to_target: '{target}'\n"
                    "doc_to_choice: '{{choices.text}}'\nathanor: {data: arc_easy}\n")
    return file


def test_a_task_file_that_was_changed_is_another_evaluation(athanor, case, tmp_path):
    _, run, data = case
    words = [run, "--tasks", write_task(tmp_path / "mine.yaml", "0"), "--data", data, "--out", tmp_path / "out.json"]
    evaluate(athanor, *words)
    write_task(tmp_path / "mine.yaml", "1")
    assert "another evaluation" in refused(athanor, *words)


def test_an_unfinished_evaluation_is_not_replaced_by_another_and_not_shared(athanor, case, tmp_path):
    _, run, data = case
    out = tmp_path / "out.json"
    words = [run, "--tasks", "arc_easy", "--data", data, "--window-tokens", 1, "--out", out]
    environment = dict(os.environ, ATHANOR_FAULT="eval.after_window:kill@1")
    assert athanor.run("eval", *words, check=False, env=environment).returncode != 0
    unfinished = tmp_path / "out.json.unfinished"
    kept = unfinished.read_bytes()
    assert "not finished" in refused(athanor, *words, "--fewshot", 2)
    assert unfinished.read_bytes() == kept
    with open(unfinished) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert "another process" in refused(athanor, *words)
    evaluate(athanor, *words)
    counts = json.loads(out.read_text())["athanor"]
    assert counts["documents"] == 24 and counts["documents_taken_up"] == 16


def test_a_journal_with_a_line_too_few_is_taken_up_before_it(athanor, case, tmp_path):
    _, run, data = case
    whole = tmp_path / "whole.json"
    words = [run, "--tasks", "arc_easy", "--data", data, "--window-tokens", 1, "--samples"]
    evaluate(athanor, *words, "--out", whole)
    out = tmp_path / "out.json"
    environment = dict(os.environ, ATHANOR_FAULT="eval.after_window:kill@2")
    assert athanor.run("eval", *words, "--out", out, check=False, env=environment).returncode != 0
    unfinished = tmp_path / "out.json.unfinished"
    lines = unfinished.read_text().splitlines(keepends=True)
    del lines[20]  # in the second window
    unfinished.write_text("".join(lines))
    evaluate(athanor, *words, "--out", out)
    (mine,), (theirs,) = (list(file.with_suffix(".samples").iterdir()) for file in (out, whole))
    assert mine.read_text() == theirs.read_text()


def test_samples_replace_nothing_but_samples(athanor, case, tmp_path):
    _, run, data = case
    folder = tmp_path / "out.samples"
    folder.mkdir()
    (folder / "mine.txt").write_text("precious")
    assert "mine.txt" in refused(athanor, run, "--tasks", "arc_easy", "--data", data, "--out", tmp_path / "out.json", "--samples")
    assert (folder / "mine.txt").read_text() == "precious"


ODD = {"no results": ('{"results":{"a":3}}', '{', '{"results":{},"groups":[1]}', '{"results":{},"group_subtasks":{"g":[1,2]}}', '[]'),
       "another evaluation": ('{"results":{},"athanor":{"evaluation":3}}', '{"results":{},"athanor":3}')}


@pytest.mark.parametrize("most", [2, pytest.param(None, marks=pytest.mark.slow)])
def test_files_of_odd_shapes_are_refused_and_not_read_wrongly(athanor, case, tmp_path, most):
    _, run, data = case
    words = [run, "--tasks", "arc_easy", "--data", data, "--limit", 2]
    odd = tmp_path / "odd.json"
    for text in ODD["no results"][:most]:
        odd.write_text(text)
        assert "no results" in refused(athanor, *words, "--compare", odd)
    for text in ODD["another evaluation"][:most and 1]:
        odd.write_text(text)
        assert "another evaluation" in refused(athanor, *words, "--out", odd)


def test_a_damaged_checkpoint_is_passed_over_by_every(athanor, case, tmp_path):
    _, run, data = case
    copy = tmp_path / "run"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("models", "evals"))
    oldest = sorted((copy / "checkpoints").iterdir())[0]
    (oldest / "manifest.json").write_text("{")
    done = evaluate(athanor, copy, "--every", "--tasks", "arc_easy", "--data", data, "--out", tmp_path / "all")
    assert "is passed over" in done.stderr and oldest.name in done.stderr
    assert len(list((tmp_path / "all").iterdir())) == 1


def test_results_among_the_rows_are_found_again(athanor, case, tmp_path):
    _, run, data = case
    rows = tmp_path / "rows"
    shutil.copytree(data, rows)
    words = [run, "--tasks", "arc_easy", "--data", rows, "--out", rows / "out.json"]
    evaluate(athanor, *words)
    assert "has the results already" in evaluate(athanor, *words).stderr


def test_two_models_of_one_name_have_columns_of_their_paths(athanor, case, tmp_path):
    _, run, data = case
    shutil.copytree(run, tmp_path / "other")
    done = evaluate(athanor, run, tmp_path / "other", "--tasks", "arc_easy", "--data", data, "--out", tmp_path / "all")
    assert str(tmp_path / "other") in done.stdout.splitlines()[0]
