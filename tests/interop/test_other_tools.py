"""The programs in docs/metrics.md bring every value of a run into Weights & Biases and MLflow, and its lines have the published schema."""
import json
import math
import os
import pathlib
import re
import struct
import subprocess
import sys

import pytest
from gate_rows import write_rows
from runs import Run, make_data

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
SCHEMA = json.loads((ROOT / "docs" / "metrics.schema.json").read_text())


@pytest.fixture(scope="module")
def run(athanor, tmp_path_factory):
    made = Run(athanor, tmp_path_factory.mktemp("run"), make_data(athanor, tmp_path_factory.mktemp("data")), "olmoe")
    made.train("metrics.layer_statistics=3", "metrics.update_watch_interval=2", *write_rows(tmp_path_factory.mktemp("gate")))
    return made


def program_of(tool):
    """The first program after the tool's name in the section about other tools."""
    section = PAGE.split("\n### In other tools\n")[1]
    return re.search(r"```python\n(.*?)```", section[section.index(f"\n{tool}"):], re.S)[1]


def run_program(tool, folder, *words, **environment):
    (folder / "program.py").write_text(program_of(tool))
    done = subprocess.run([sys.executable, "program.py", *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=300,
                          env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-2000:]


def wandb_records(file):
    """The records of an offline run, which has the form of LevelDB's log: blocks of 32 KiB, with checksum, length and kind of each part."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at: at + 7])
        whole += data[at + 7: at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the only part, or the last one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def flat(value, name):
    """Members of objects, with the names that Weights & Biases keeps."""
    if isinstance(value, dict):
        return {key: each for member, inner in value.items() for key, each in flat(inner, f"{name}.{member}").items()}
    return {name: value}


def test_weights_and_biases_keeps_every_value(run, tmp_path):
    pytest.importorskip("wandb")
    run_program("Weights & Biases", tmp_path, run.folder, WANDB_SILENT="true", WANDB_DIR=str(tmp_path))
    kept = []
    for record in wandb_records(next(tmp_path.glob("wandb/offline-run-*/*.wandb"))):
        if record.WhichOneof("record_type") == "history":
            items = {".".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
            kept.append({key: each for name, value in items.items() for key, each in flat(value, name).items()})
    lines = run.metrics()
    assert len(kept) == len(lines) == 8
    for mine, theirs in zip(lines, kept):
        expected = {key: each for name, value in mine.items() for key, each in flat(value, name).items()}
        assert {key: theirs.get(key) for key in expected} == expected


def test_mlflow_keeps_every_number(run, tmp_path):
    pytest.importorskip("mlflow")
    run_program("MLflow", tmp_path, run.folder, f"file:{tmp_path / 'mlruns'}", MLFLOW_ALLOW_FILE_STORE="true")
    lines = run.metrics()
    names = {name for line in lines for name, value in line.items() if isinstance(value, (int, float))}
    files = {file.name: file for file in tmp_path.glob("mlruns/0/*/metrics/*")}
    assert set(files) == names
    for name, file in files.items():
        kept = {int(step): float(value) for _, value, step in map(str.split, file.read_text().splitlines())}
        assert kept == {line["step"]: line[name] for line in lines if name in line}, name


def test_lines_have_the_published_schema_which_defines_each_field(run):
    jsonschema = pytest.importorskip("jsonschema")
    strict = jsonschema.Draft202012Validator({**SCHEMA, "additionalProperties": False})
    for line in run.metrics():
        assert [error.message for error in strict.iter_errors(line)] == []
    broken = {**run.metrics()[0], "loss": "5.0", "schema": 2, "tokens": 1.5}
    assert len(list(strict.iter_errors(broken))) == 3 and not math.isnan(run.metrics()[0]["loss"])


def test_the_schema_and_the_page_define_the_same_fields():
    section = PAGE.split("\n## metrics.jsonl\n")[1].split("\n### ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert set(SCHEMA["properties"]) == {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
