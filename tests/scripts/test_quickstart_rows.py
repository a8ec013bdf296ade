"""The quickstart's evaluation asks about documents that the model was not trained on, the same ones each time."""
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARAGRAPHS = 30


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def document(number):
    return "\n\n".join(f"Document {number} has paragraph {i}, " + "which says a little more than the one before it and less than others " * 2
                       for i in range(PARAGRAPHS))


def make(folder, count):
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": document(i)}) + "\n" for i in range(count)))
    return subprocess.run([sys.executable, ROOT / "scripts/quickstart_rows", folder / "text.jsonl", folder / "training.jsonl", folder / "eval"],
                          capture_output=True, text=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    done = make(folder, 100)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_no_document_is_both_trained_on_and_asked_about(made):
    folder, said = made
    trained = {row["text"] for row in read(folder / "training.jsonl")}
    asked = read(folder / "eval" / "text.jsonl")
    assert (len(trained), len(asked)) == (90, 10) and "90 documents to train on, 10 held back" in said
    assert not any(text.startswith(row["text"]) for row in asked for text in trained)
    rows = read(folder / "eval" / "next_paragraph.jsonl")
    everything = "\n\n".join(trained)
    assert len(rows) == 200 and not any(row["paragraph"] in everything for row in rows)


def test_the_answer_is_the_paragraph_that_follows_and_the_others_are_of_other_documents(made):
    for row in read(made[0] / "eval" / "next_paragraph.jsonl"):
        number, paragraph = (int(word.strip(",")) for word in (row["paragraph"].split()[1], row["paragraph"].split()[4]))
        right = row["candidates"].pop(row["answer"])
        assert right.startswith(f"Document {number} has paragraph {paragraph + 1}, ")
        assert len(row["candidates"]) == 3 and not any(each.startswith(f"Document {number} ") for each in row["candidates"])


def test_the_same_text_gives_the_same_rows(made, tmp_path):
    make(tmp_path, 100)
    for name in ("training.jsonl", "eval/text.jsonl", "eval/next_paragraph.jsonl"):
        assert (tmp_path / name).read_bytes() == (made[0] / name).read_bytes()


def test_a_text_that_is_too_small_is_refused_and_nothing_is_written(tmp_path):
    done = make(tmp_path, 10)
    assert done.returncode == 1 and "gives 0 rows where 200 are needed" in done.stderr
    assert not (tmp_path / "eval").exists() and not (tmp_path / "training.jsonl").exists()
