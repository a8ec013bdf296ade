"""lm_eval's own tasks on rows in local files, without a network, for the comparison of speed and for tests/interop.

Each task is lm_eval's task file with its data set replaced by a file of rows: the split that it evaluates, and where there are no
training rows also the split of its examples, less the document itself (`fewshot_split` is `test_split` then).
"""
import gzip
import json
import pathlib
import tempfile

import lm_eval

TASKS = pathlib.Path(lm_eval.__file__).parent / "tasks"
FILES = {
    "arc_easy": "arc/arc_easy.yaml", "arc_challenge": "arc/arc_challenge.yaml", "hellaswag": "hellaswag/hellaswag.yaml",
    "piqa": "piqa/piqa.yaml", "boolq": "super_glue/boolq/default.yaml", "sciq": "sciq/sciq.yaml",
    "winogrande": "winogrande/default.yaml", "openbookqa": "openbookqa/openbookqa.yaml",
}


def rows_of(file):
    opened = gzip.open(file, "rt") if file.suffix == ".gz" else open(file)
    with opened as lines:
        return [json.loads(line) for line in lines]


def adapted(name, rows):
    """The fields that lm_eval's own data sets have and the rows here lack."""
    if name == "boolq":
        return [{**row, "label": int(row["answer"])} for row in rows]
    return rows


def write_rows(rows):
    file = tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False)
    with file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    return file.name


def task_of(config):
    from lm_eval.api.task import ConfigurableTask

    return ConfigurableTask(config=config)


def read_config(file):
    """The task file as lm_eval reads it: with what it includes, and with its functions."""
    from lm_eval.tasks._yaml_loader import load_yaml

    return load_yaml(file, resolve_func=True)


def lm_eval_tasks(name, folder):
    """The tasks that `name` stands for: one, or the subjects of mmlu."""
    if name == "mmlu":
        return mmlu_tasks(folder)
    config = read_config(TASKS / FILES[name])
    rows = adapted(name, rows_of(folder / f"{name}.jsonl.gz"))
    for key in ("tag", "dataset_name", "training_split", "validation_split"):
        config.pop(key, None)
    config.update(dataset_path="json", dataset_kwargs={"data_files": {"test": write_rows(rows)}}, test_split="test",
                  fewshot_split="test")
    return [task_of(config)]


def mmlu_tasks(folder):
    base = TASKS / "mmlu" / "default"
    by_subject = {}
    for split, file in (("test", "mmlu_test"), ("dev", "mmlu_dev")):
        for row in rows_of(folder / f"{file}.jsonl.gz"):
            by_subject.setdefault(row["subject"], {}).setdefault(split, []).append(row)
    tasks = []
    for subject in sorted(by_subject):
        config = read_config(base / f"mmlu_{subject}.yaml")
        files = {split: write_rows(rows) for split, rows in by_subject[subject].items()}
        for key in ("tag", "dataset_name"):
            config.pop(key, None)
        config.update(dataset_path="json", dataset_kwargs={"data_files": files})
        tasks.append(task_of(config))
    return tasks
