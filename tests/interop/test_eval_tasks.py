"""Evaluation tasks give the requests, scores and results of lm_eval, whose own tasks read the same rows."""
import gzip
import json
import math
import os
import pathlib
import random
import subprocess

import pytest
from conftest import ROOT, find_program
from lm_eval_reference import Reference, drawn_answer

TASKS = ROOT / "tasks"
BOOTSTRAPPED = ("perplexity", "f1", "mcc")  # lm_eval draws samples for their errors; ours are N/A


@pytest.fixture(scope="module")
def reference():
    return Reference()


def ask(**line):
    """What tasks_tool answers for a selection."""
    program = find_program("tasks_tool").path
    done = subprocess.run([program, "documents"], input=json.dumps(line).encode() + b"\n", capture_output=True, check=True, timeout=300)
    answer = json.loads(done.stdout)
    assert "error" not in answer, answer
    return answer


def evaluate(**selection):
    """Our documents, samples and results with drawn answers."""
    documents = ask(**selection)["documents"]
    answers = [drawn_answer(context, continuation) for document in documents for context, continuation, _ in document["requests"]]
    return ask(**selection, answers=answers)


def plain(value):
    """What json makes of tuples, and of numpy's numbers."""
    return json.loads(json.dumps(value, default=lambda o: o.tolist() if hasattr(o, "tolist") else str(o)))


def close(ours, theirs):
    """Equal, or numbers within a few roundings: only the Brier score adds in another order."""
    if isinstance(theirs, float) and isinstance(ours, (int, float)):
        return math.isclose(ours, theirs, rel_tol=1e-12) or (math.isnan(ours) and math.isnan(theirs))
    return ours == theirs


def compare(ours, theirs, own_metrics=()):
    """Compares samples one by one, and results key by key."""
    theirs = plain(theirs)
    samples = [sample for samples in theirs["samples"].values() for sample in samples]
    assert len(ours["samples"]) == len(samples) == ours["num_documents"]
    for mine, other in zip(ours["samples"], samples):
        assert mine["arguments"] == other["arguments"], (mine["arguments"], other["arguments"])
        for key in other:
            if key == "doc_hash" and mine["doc"] != other["doc"]:
                continue  # the row has a field more or less than lm_eval's
            if key != "doc":
                # The probabilities of a Brier score may differ by numpy's exponential.
                assert mine[key] == other[key] or key == "brier_score" or key == "metrics", (key, mine[key], other[key])
    results = ours["results"]
    for name, other in theirs["results"].items():
        mine = results["results"][name]
        assert set(mine) - set(other) == {f"{metric}{suffix},none" for metric in own_metrics for suffix in ("", "_stderr")}
        for key, value in other.items():
            if key.split("_stderr")[0] in BOOTSTRAPPED and "_stderr" in key:
                assert mine[key] == "N/A"
            else:
                assert close(mine[key], value), (name, key, mine[key], value)
    assert list(results["results"]) == list(theirs["results"])
    for key in ("groups", "group_subtasks", "n-shot", "n-samples", "versions"):
        assert plain(results.get(key, {})).keys() == plain(theirs.get(key, {})).keys(), key
    for key in ("group_subtasks", "n-shot", "n-samples", "versions"):
        assert results[key] == theirs[key], key
    if not own_metrics:
        assert results["higher_is_better"] == theirs["higher_is_better"]


# ---- The shipped tasks on the data sets' rows ---------------------------------------------------------------------------

# Where lm_eval has its file, and the split that is evaluated.
SHIPPED = {
    "arc_easy": ("arc/arc_easy.yaml", "test"), "arc_challenge": ("arc/arc_challenge.yaml", "test"), "hellaswag": ("hellaswag/hellaswag.yaml", "validation"),
    "piqa": ("piqa/piqa.yaml", "validation"), "boolq": ("super_glue/boolq/default.yaml", "validation"), "sciq": ("sciq/sciq.yaml", "test"),
    "winogrande": ("winogrande/default.yaml", "validation"), "openbookqa": ("openbookqa/openbookqa.yaml", "test"),
}


def read_rows(path, most=None):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line, _ in zip(file, range(most or 10**9))]


@pytest.mark.parametrize("fewshot, count, limit", [
    (0, 40, 8), (3, 40, 8), *(pytest.param(fewshot, 300, 40, marks=pytest.mark.slow) for fewshot in (0, 3))])
def test_shipped_tasks_give_the_requests_and_results_of_lm_eval(shared, reference, tmp_path, fewshot, count, limit):
    tasks = {}
    for name, (file, split) in SHIPPED.items():
        rows = read_rows(shared / "data" / "eval" / f"{name}.jsonl.gz", count)
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        if name == "boolq":
            rows = [{**row, "label": int(row["answer"])} for row in rows]
        config = reference.load_yaml(os.path.join(reference.folder, file), resolve_func=True)
        # Only the evaluated rows are there, so lm_eval takes examples from them, without the document that is asked.
        config.update(training_split=None, validation_split=split if split == "validation" else None)
        if split == "test":
            config["fewshot_split"] = "test"
        tasks[name] = reference.task(config, {split: rows})
    theirs = reference.evaluate(tasks, fewshot=fewshot, limit=limit)
    compare(evaluate(names=list(SHIPPED), data=str(tmp_path), fewshot=fewshot, limit=limit), theirs)


@pytest.mark.parametrize("most, limit", [(6, 1), pytest.param(None, 3, marks=pytest.mark.slow)], ids=["few rows", "all rows"])
def test_mmlu_gives_the_requests_and_groups_of_lm_eval(shared, reference, tmp_path, most, limit):
    by_subject = {}
    for split in ("test", "dev"):
        for row in read_rows(shared / "data" / "eval" / f"mmlu_{split}.jsonl.gz"):
            of_subject = by_subject.setdefault(row["subject"], {}).setdefault(split, [])
            if most is None or len(of_subject) < most:
                of_subject.append(row)
        rows = [row for splits in by_subject.values() for row in splits[split]]
        (tmp_path / f"mmlu_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for subject, splits in by_subject.items():
        reference.rows[("cais/mmlu", subject)] = splits
    manager = reference.tasks.TaskManager(include_defaults=False, include_path=os.path.join(reference.folder, "mmlu", "default"))
    loaded = manager.load(["mmlu"])
    theirs = reference.evaluate(loaded["tasks"], loaded["groups"], fewshot=5, limit=limit)
    ours = evaluate(names=["mmlu"], data=str(tmp_path), fewshot=5, limit=limit)
    assert ours["num_documents"] == 57 * limit
    compare(ours, theirs)


# ---- Made-up rows -------------------------------------------------------------------------------------------------------

WORDS = "the a river stone éclair 👍 naïve light; under-taken [title] 3.5 “quoted” it's _ Ω\u00a0end".split(" ")


def sentence(draw, least=2, most=9):
    return " ".join(draw.choice(WORDS) for _ in range(draw.randrange(least, most))) + draw.choice([".", "?", "", " "])


def made_up(draw, count):
    """Rows with the fields of several data sets at once."""
    rows = []
    for i in range(count):
        texts = [sentence(draw) for _ in range(4)]
        rows.append({
            "id": i, "question": sentence(draw), "context": sentence(draw, 5, 30), "options": texts, "choices": {"text": [*texts, "last"], "label": list("ABCDE")},
            "answerKey": draw.choice("ABCDE"), "label": draw.choice("abcd"), "premise": "The " + sentence(draw) + ".", "kind": draw.choice(["cause", "effect"]),
            "choice1": "The " + sentence(draw), "choice2": "A " + sentence(draw), "gold": draw.randrange(2), "golds": sorted(draw.sample(range(4), 2)),
            "text": " " + sentence(draw, 20, 60) + "\n\nnext  paragraph", "number": draw.choice([1.0, 2.5, -3e-7]), "empty": ""})
    return rows


BASE = {"output_type": "multiple_choice", "training_split": "train", "validation_split": "validation", "test_split": "test"}
ACC = [{"metric": "acc"}, {"metric": "acc_norm"}, {"metric": "acc_bytes"}, {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}]
MADE_UP = {
    # lm_eval's super_glue/copa, whose functions are templates here.
    "copa": {**BASE, "test_split": None,
             "doc_to_text": "{{premise.strip()[:-1]}} {{ {'cause': 'because', 'effect': 'therefore'}[kind] }}",
             "doc_to_target": "{% set right = choice1 if gold == 0 else choice2 %} {{right[0].lower()}}{{right[1:]}}",
             "doc_to_choice": "{{[' ' ~ choice1[0].lower() ~ choice1[1:], ' ' ~ choice2[0].lower() ~ choice2[1:]]}}", "metric_list": [{"metric": "acc"}]},
    # lm_eval's logiqa.
    "logiqa": {**BASE, "doc_to_choice": "{{options}}", "doc_to_target": "{{['a', 'b', 'c', 'd'].index(label.strip())}}",
               "doc_to_text": "Passage: {{context}}\nQuestion: {{question}}\nChoices:\n{% for option in options %}{{'ABCD'[loop.index0]}}. {{option}}\n{% endfor %}Answer:",
               "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}, {"metric": "acc_norm"}]},
    "described": {**BASE, "description": "About {{kind}} no. {{id}}.\n\n", "gen_prefix": "So:", "doc_to_text": "question", "doc_to_target": "{{choices.label.index(answerKey)}}",
                  "doc_to_choice": "{{choices.text}}", "metric_list": ACC, "target_delimiter": "", "fewshot_delimiter": "\n---\n", "num_fewshot": 1},
    "overridden": {**BASE, "fewshot_split": "validation", "doc_to_text": "Q: {{question}} A:", "doc_to_target": "gold", "doc_to_choice": ["no", "yes"],
                   "fewshot_config": {"sampler": "first_n", "doc_to_text": "Example {{id}}: {{question}}", "doc_to_choice": ["NO", "YES"], "target_delimiter": " -> ",
                                      "fewshot_delimiter": "\n", "gen_prefix": "answer"}},
    "sampled": {**BASE, "training_split": None, "validation_split": None, "doc_to_text": "{{question}}", "doc_to_target": "{{gold}}", "doc_to_choice": {"x": "no", "y": "yes"},
                "fewshot_config": {"samples": [{"question": f"what {i}?", "gold": i % 2} for i in range(8)]}},
    "tests_as_examples": {**BASE, "fewshot_split": "test", "doc_to_text": "{{question}}", "doc_to_target": "{{answerKey}}", "doc_to_choice": ["A", "B", "C", "D", "E"]},
    "first_tests": {**BASE, "fewshot_split": "test", "fewshot_config": {"sampler": "first_n"}, "doc_to_text": "{{question}}", "doc_to_target": "{{gold}}", "doc_to_choice": ["a", "b"]},
    "several_right": {**BASE, "doc_to_text": "{{question}}", "doc_to_target": "{{golds}}", "doc_to_choice": "options", "metric_list": ACC, "num_fewshot": 0},
    "mutual": {**BASE, "doc_to_text": "{{question}}", "doc_to_target": "{{gold}}", "doc_to_choice": ["n\u00f6", "yes"],
               "metric_list": [{"metric": m} for m in ("acc", "acc_mutual_info", "f1", "mcc", "brier_score")]},
    "inputs": {**BASE, "doc_to_text": "{{gold}}", "doc_to_target": "{{context}}", "doc_to_choice": "{{[choice1, choice2]}}", "metric_list": ACC},
    "cloze": {**BASE, "output_type": "loglikelihood", "doc_to_text": "{{text.split(' ')[:-1]|join(' ')}}", "doc_to_target": "{{' ' + text.split(' ')[-1]}}",
              "metric_list": [{"metric": "perplexity", "aggregation": "perplexity", "higher_is_better": False}, {"metric": "acc"}]},
    "rolling": {"output_type": "loglikelihood_rolling", "test_split": "test", "doc_to_text": "", "doc_to_target": "{{text}}"},
}


@pytest.fixture(scope="module")
def made_up_data(tmp_path_factory):
    """A folder with rows of three splits and our task files; and the splits."""
    draw = random.Random(7)
    folder = tmp_path_factory.mktemp("rows")
    splits = {"train": made_up(draw, 90), "validation": made_up(draw, 30), "test": made_up(draw, 40)}
    splits["test"][5:12] = [splits["test"][4]] * 7  # equal rows, of which an example may be none
    for split, rows in splits.items():
        (folder / f"rows_{split}.jsonl").write_text("".join(json.dumps(row, ensure_ascii=split != "test") + "\n" for row in rows))
    tasks = folder / "tasks"
    tasks.mkdir()
    for name, keys in MADE_UP.items():
        # JSON is YAML.
        (tasks / f"{name}.yaml").write_text(json.dumps({"task": name, **keys, "athanor": {"data": "rows"}}))
    return folder, splits


# The first 14 documents include equal rows, of which an example may be none.
@pytest.mark.parametrize("fewshot, limit", [(0, 14), (5, 14), *(pytest.param(n, None, marks=pytest.mark.slow) for n in (0, 5))])
def test_made_up_tasks_give_the_requests_and_results_of_lm_eval(made_up_data, reference, fewshot, limit):
    folder, splits = made_up_data
    tasks = {name: reference.task({"task": name, **keys}, splits) for name, keys in MADE_UP.items()}
    theirs = reference.evaluate(tasks, fewshot=fewshot, limit=limit)
    some = {} if limit is None else {"limit": limit}
    ours = evaluate(names=list(MADE_UP), include=[str(folder / "tasks")], data=str(folder), fewshot=fewshot, **some)
    compare(ours, theirs)


def test_a_file_of_lm_eval_without_functions_runs_as_it_is(made_up_data, reference, tmp_path):
    """commonsense_qa has no Python function: its rows get the name of its task."""
    folder, splits = made_up_data
    file = pathlib.Path(reference.folder, "commonsense_qa", "default.yaml")
    for split, rows in splits.items():
        (tmp_path / f"commonsense_qa_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    theirs = reference.evaluate({"commonsense_qa": reference.task(reference.load_yaml(file), splits)}, fewshot=4, seed=99)
    compare(evaluate(names=[str(file)], data=str(tmp_path), fewshot=4, seed=99), theirs)


def test_limits_are_those_of_lm_eval(made_up_data, reference):
    folder, splits = made_up_data
    for limit in (0.01, 0.37, 0.999, 1, 7, 1000):
        theirs = reference.evaluate({"logiqa": reference.task({"task": "logiqa", **MADE_UP["logiqa"]}, splits)}, limit=limit)
        ours = evaluate(names=["logiqa"], include=[str(folder / "tasks")], data=str(folder), limit=limit)
        compare(ours, theirs)


def test_perplexity_reads_texts_of_every_kind(tmp_path):
    texts = ["one two  three\n", "é\u00a0b", "last"]
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    def perplexity():
        answer = evaluate(names=["perplexity", "perplexity_strided"], data=str(tmp_path))
        result = answer["results"]["results"]["perplexity"]
        return [document["requests"][0][1] for document in answer["documents"] if document["task"] == "perplexity"], result

    (tmp_path / "text").mkdir()
    for i, text in enumerate(texts):
        (tmp_path / "text" / f"{i}.txt").write_text(text)
    from_folder, result = perplexity()
    assert from_folder == texts
    answers = [drawn_answer("", text) for text in texts]
    total = sum(answer[0] for answer in answers)
    assert result["word_perplexity,none"] == math.exp(-total / sum(len(__import__("re").split(r"\s+", text)) for text in texts))
    assert result["bits_per_byte,none"] == -(total / sum(len(text.encode()) for text in texts)) / math.log(2)
    assert result["token_perplexity,none"] == math.exp(-total / sum(answer[2] for answer in answers))
    with gzip.open(tmp_path / "text.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts[::-1])
    assert perplexity()[0] == texts[::-1]
    pyarrow.parquet.write_table(pyarrow.table({"text": texts[:2]}), tmp_path / "text_test.parquet")
    assert perplexity()[0] == texts[:2]


def test_rows_of_parquet_are_those_of_json_lines(made_up_data, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet
    folder, splits = made_up_data
    (tmp_path / "rows").mkdir()
    for split, rows in splits.items():
        table = pyarrow.Table.from_pylist(rows)
        half = len(rows) // 2
        pyarrow.parquet.write_table(table[:half], tmp_path / "rows" / f"{split}-00000-of-00002.parquet", row_group_size=7)
        pyarrow.parquet.write_table(table[half:], tmp_path / "rows" / f"{split}-00001-of-00002.parquet", compression="zstd")
    names = ["logiqa", "described", "several_right", "cloze"]
    selection = {"names": names, "include": [str(folder / "tasks")], "fewshot": 2}
    assert ask(**selection, data=str(tmp_path))["documents"] == ask(**selection, data=str(folder))["documents"]
