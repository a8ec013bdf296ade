"""Rows and task files for tests of evaluation during training: made up, with the words of make_data."""
import json
import random

WORDS = "the quick brown fox jumps over the lazy dog and runs from it".split()
# The texts of `even` are those that the data of make_data has; `choices` asks for a word; a group combines two tasks.
TASKS = {
    "words.yaml": {"task": "words", "output_type": "multiple_choice", "test_split": "test", "doc_to_text": "{{question}}",
                   "doc_to_choice": "{{choices}}", "doc_to_target": "{{answer}}",
                   "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}], "athanor": {"data": "words", "chance": 0.25}},
    "texts.yaml": {"task": "texts", "output_type": "loglikelihood_rolling", "test_split": "test", "doc_to_text": "",
                   "doc_to_target": "{{text}}", "metric_list": [{"metric": "word_perplexity"}, {"metric": "bits_per_byte"}],
                   "athanor": {"data": "texts"}},
}
GROUP = {"group": "both", "task": ["words", "other_words"], "aggregate_metric_list": [{"metric": "acc"}], "athanor": {"chance": 0.25}}


def write_rows(folder, count=40):
    """Writes task files and rows; returns the overrides of a run that uses them."""
    draw = random.Random(11)
    (folder / "tasks").mkdir()
    (folder / "rows").mkdir()
    for name, keys in TASKS.items():
        (folder / "tasks" / name).write_text(json.dumps(keys))
    (folder / "tasks" / "other.yaml").write_text(json.dumps(TASKS["words.yaml"] | {"task": "other_words"}))
    (folder / "tasks" / "both.yaml").write_text(json.dumps(GROUP))
    questions = [{"question": " ".join(draw.choices(WORDS, k=draw.randint(2, 9))), "choices": draw.sample(WORDS[:6], 4),
                  "answer": draw.randrange(4)} for _ in range(count)]
    texts = [{"text": " ".join(draw.choices(WORDS, k=draw.randint(5, 60)))} for _ in range(6)]
    for name, rows in (("words", questions), ("texts", texts)):
        (folder / "rows" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["eval.tasks=[\"words\",\"texts\"]", f"eval.data={folder / 'rows'}", f"eval.include_paths=[\"{folder / 'tasks'}\"]",
            "eval.interval=4", "eval.batch_tokens=256"]
