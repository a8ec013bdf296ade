"""The progression of scores over the checkpoints of runs: `athanor eval --every --figure`, and `athanor plot --evals` of results that are there."""
import json
import random
import shutil
import xml.etree.ElementTree

import pytest
from conftest import ROOT
from runs import Run, make_data

SVG = "{http://www.w3.org/2000/svg}"
TASK = {"output_type": "multiple_choice", "test_split": "test", "doc_to_text": "{{q}}", "doc_to_choice": "{{choices}}", "doc_to_target": "gold"}
STEPS = [3, 4, 6, 8]  # where the run leaves checkpoints and models


@pytest.fixture(scope="module")
def place(athanor, tmp_path_factory):
    """A folder with a tiny run, two tasks over made-up rows, and a group of them that does not combine."""
    folder = tmp_path_factory.mktemp("progression")
    run = Run(athanor, folder, make_data(athanor, folder), "llama")
    run.train("checkpoint.keep=9")
    draw = random.Random(5)
    words = "the quick brown fox jumps over the lazy dog".split()
    rows = [{"q": " ".join(draw.choices(words, k=6)), "choices": draw.sample(words, 2), "gold": draw.randrange(2)} for _ in range(20)]
    (folder / "rows").mkdir()
    (folder / "rows" / "rows_test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, metrics in (("plain", ["acc"]), ("normed", ["acc", "acc_norm"])):
        (folder / f"{name}.yaml").write_text(json.dumps({"task": name, **TASK, "metric_list": [{"metric": metric} for metric in metrics],
                                                         "athanor": {"data": "rows", "chance": 0.5}}))
    (folder / "both.yaml").write_text(json.dumps({"group": "both", "task": ["plain", "normed"]}))
    return folder


def evaluate(athanor, place, *options, **more):
    return athanor.run("eval", place / "run", "--every", "--include-path", place, "--tasks", "both", "--data", place / "rows", *options, **more)


def texts(path):
    return [element.text for element in xml.etree.ElementTree.parse(path).iter(SVG + "text")]


def cells(line):
    return line.split()


def test_one_command_gives_the_table_and_the_figure_and_plot_gives_them_again(athanor, place, tmp_path):
    done = evaluate(athanor, place, "--figure", tmp_path / "figure.svg")
    lines = done.stdout.splitlines()
    assert cells(lines[0]) == ["step", "tokens", "plain", "normed", "average"]
    assert cells(lines[1]) == ["metric", "acc", "acc_norm", "accuracy"]
    assert cells(lines[2]) == ["chance", "0.5000", "0.5000", "0.5000"]
    assert [int(cells(line)[0]) for line in lines[4:]] == STEPS
    for line in lines[4:]:
        step, tokens, plain, normed, average = (float(cell.replace(",", "")) for cell in cells(line))
        assert tokens == step * 4 * 32
        results, = [json.loads(file.read_text()) for file in (place / "run" / "evals").glob(f"step-{int(step):08}-*.json")]
        assert round(results["results"]["plain"]["acc,none"], 4) == plain and round(results["results"]["normed"]["acc_norm,none"], 4) == normed
        assert abs(average - (plain + normed) / 2) <= 1e-4
    assert {"plain", "normed", "average", "acc_norm", "chance 0.5", "tokens"} <= set(texts(tmp_path / "figure.svg"))
    again = athanor.run("plot", "--evals", place / "run")
    assert again.stdout == done.stdout
    athanor.run("plot", "--evals", place / "run", "--out", tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "figure.svg").read_bytes()


def test_json_stays_as_it_is_and_the_metric_may_be_chosen(athanor, place):
    lines = [json.loads(line) for line in evaluate(athanor, place, "--json").stdout.splitlines()]
    assert [line["athanor"]["step"] for line in lines] == STEPS
    assert cells(evaluate(athanor, place, "--metric", "acc").stdout.splitlines()[1]) == ["metric", "acc", "acc", "accuracy"]


def made_up_results(step, tasks, **more):
    scores = {task: {"acc,none": value, "acc_stderr,none": 0.01, "sample_len": 100} for task, value in tasks.items()}
    return json.dumps({"results": scores, "athanor": {"step": step, "tokens": step * 1000}, **more})


@pytest.fixture
def made_up(tmp_path):
    """Results of three checkpoints, without a model, as training would leave them; the second lacks a task."""
    evals = tmp_path / "run" / "evals"
    evals.mkdir(parents=True)
    for step, tasks in ((100, {"arc_easy": 0.3, "piqa": 0.5}), (200, {"arc_easy": 0.4}), (300, {"arc_easy": 0.5, "piqa": 0.7})):
        (evals / f"step-{step:08}.json").write_text(made_up_results(step, tasks))
    return tmp_path / "run"


def test_a_missing_task_is_a_gap_and_chance_is_that_of_the_shipped_tasks(athanor, made_up):
    lines = athanor.run("plot", "--evals", made_up).stdout.splitlines()
    assert cells(lines[2]) == ["chance", "0.2500", "0.5000", "0.3750"]
    assert cells(lines[5]) == ["200", "200,000", "0.4000", "–", "–"]


def test_a_file_without_a_step_has_that_of_its_name(athanor, made_up):
    (made_up / "evals" / "step-00000400.json").write_text(json.dumps({"results": {"arc_easy": {"acc,none": 0.6, "sample_len": 100}}}))
    assert cells(athanor.run("plot", "--evals", made_up).stdout.splitlines()[-1])[:3] == ["400", "–", "0.6000"]


def test_foreign_and_unfinished_files_are_named_and_left_out(athanor, made_up):
    evals = made_up / "evals"
    before = athanor.run("plot", "--evals", made_up).stdout
    (evals / "step-00000500.json.unfinished").write_text("x")
    (evals / "notes.json").write_text("[1, 2")
    (evals / "other.json").write_text('{"results": {"a": {"acc,none": 1.0}}}')
    (evals / "deep.json").write_text("[" * 100_000)
    (evals / ".step-00000600.json.tmp").write_text("{")
    (evals / "step-00000100.samples").mkdir()
    (evals / "folder.json").mkdir()
    (evals / "gone.json").symlink_to("nowhere")
    done = athanor.run("plot", "--evals", made_up)
    assert done.stdout == before
    assert "files that are no results of a checkpoint (4)" in done.stderr and "notes.json" in done.stderr
    assert "evaluations that are not finished, which the same athanor eval continues (1)" in done.stderr and "step-00000500.json.unfinished" in done.stderr


def test_several_runs_have_a_table_each_and_one_named_twice_is_drawn_once(athanor, made_up, tmp_path):
    shutil.copytree(made_up, tmp_path / "other")
    done = athanor.run("plot", "--evals", made_up, tmp_path / "other", made_up, "--out", tmp_path / "x.svg")
    assert "is named twice" in done.stderr
    assert {str(made_up), str(tmp_path / "other")} <= {text.replace("…", "") for text in texts(tmp_path / "x.svg")}
    shown = athanor.run("plot", "--evals", made_up, tmp_path / "other").stdout
    assert shown.count("stderr up to") == 2 and shown.startswith(f"{made_up}\n")


def test_a_thousand_checkpoints_are_drawn_in_one_picture(athanor, tmp_path):
    (tmp_path / "evals").mkdir()
    for step in range(1, 1001):
        (tmp_path / "evals" / f"step-{step:08}.json").write_text(made_up_results(step, {"arc_easy": 0.25 + step / 2000}))
    athanor.run("plot", "--evals", tmp_path, "--out", tmp_path / "x.svg")
    lines = [element for element in xml.etree.ElementTree.parse(tmp_path / "x.svg").iter(SVG + "polyline")]
    assert len(lines) == 1 and (tmp_path / "x.svg").stat().st_size < 100_000


def refusal(done):
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


def test_what_cannot_be_drawn_is_answered_in_one_line(athanor, place, made_up, tmp_path):
    def plot(*words):
        return refusal(athanor.run("plot", *words, check=False))

    assert f"{tmp_path}/none does not exist" in plot("--evals", tmp_path / "none")
    (tmp_path / "empty" / "evals").mkdir(parents=True)
    assert "has no results of a run's checkpoints (those of a folder of transformers have no step); evaluate them" in plot("--evals", tmp_path / "empty")
    assert 'no result has the metric ac (did you mean "acc"?); there are acc' in plot("--evals", made_up, "--y", "ac")
    assert 'no result has arc_esy (did you mean "arc_easy"?); there are arc_easy, piqa' in plot("--evals", made_up, "--tasks", "arc_esy")
    assert "--smooth is for metrics" in plot("--evals", made_up, "--smooth", "3")
    assert "--line is for metrics" in plot("--evals", made_up, "--line", "a=1")
    assert "--x time" in plot("--evals", made_up, "--x", "time")
    assert "add --evals" in plot(made_up, "--tasks", "arc_easy")
    precious = tmp_path / "precious.svg"
    precious.write_text("not a picture")
    assert "is there and is no picture" in plot("--evals", made_up, "--out", precious)

    def every(*options):
        return refusal(evaluate(athanor, place, *options, check=False))

    assert "is there and is no picture" in every("--figure", precious)
    assert precious.read_text() == "not a picture"
    assert "give it a name that ends with .svg" in every("--figure", tmp_path / "x.png")
    assert '--metric acc_norn: no task has it (did you mean "acc_norm"?); there are acc, acc_norm' in every("--metric", "acc_norn")
    alone = athanor.run("eval", place / "run", "--tasks", "x", "--data", place / "rows", "--figure", tmp_path / "x.svg", check=False)
    assert "add --every" in refusal(alone)


def test_the_nine_tasks_of_optimus_are_one_name(athanor):
    listed = athanor.run("eval", "--list").stdout
    assert "group of arc_easy, arc_challenge, hellaswag, piqa, boolq, sciq, and 3 more" in listed
    assert (ROOT / "tasks" / "optimus9.yaml").exists()
