"""Every option and every field of the configuration, given wrongly: one line answers, and names what is wrong and what is allowed.

answers.md has all of the answers, for people to read. `ATHANOR_WRITE_ANSWERS=1 .venv/bin/pytest tests/interop/test_answers.py`
writes it again.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import tomllib

import pytest
from runs import Run, make_data

PAGE = pathlib.Path(__file__).with_name("answers.md")
# Words of libraries and of C++, which tell a user nothing.
FOREIGN = re.compile(r"std::|nlohmann|TEXT|\bU?INT\b|FLOAT|ENUM|Could not convert|Value |required but received|json\.exception|"
                     r"terminate called|Traceback|filesystem error|basic_string|stoull|toml::|not in \{")

# What an option takes that --list-options calls a text. ANY: every text is taken, so that none is wrong.
ANY = "any"
KINDS = {
    "--tokenizer": "tokenizer", "--text-field": "field", "--special-token": ANY, "--eos": "choice", "--attributes": "attributes",
    "--keep": "expression", "--drop": "expression", "INPUT": "documents", "DIR": "data", "--split": "choice", "config": "configuration",
    "--set": "setting", "--then": "setting", "RUN": "run", "--y": "choice", "--line": "choice", "run": "model", "folder": "model",
    "model": "model", "--prompt": ANY, "--prompts": "prompts", "--stop": "stop string", "--dtype": "choice", "--device": "choice", "--plant": "choice", "--json": "new file", "--schedule": "choice",
    "--pictures": "new folder", "--golden-dir": "new folder", "--out": "new folder", "--format": "choice", "--on-error": "choice",
    "tokenizer train --out": "new file", "plot --out": "picture", "report --out": "page", "--svg": "new folder", "verify --keep": "new folder", "tokenizer encode INPUT": "lines",
    "tokenizer decode INPUT": "lines", "A": "run", "B": "run", "--tensors": "choice", "--folder": "folder",
    "--hostfile": "lines", "--launcher": "choice", "--exclude-cores": "choice", "COMMAND": "program",
    "SRC": "sent", "--to": "new folder", "--yeet": "absolute folder", "LOG": "log", "--signatures": "signatures", "--attempts": "new folder", "--spare-nodes": "choice",
    "--job-script": "lines", "STEP": "choice", "--trace": "new file", "--trace-tensor": "traced tensor", "--against": "program",
    "--optimizers": "choice", "lr-find --out": "results of lr-find",
    "plot --tasks": "choice", "models": "model", "--tasks": "choice", "--data": "rows", "--include-path": "folder", "--compare": "results",
    "--figure": "picture", "--metric": "choice", "eval --out": "results to write", "eval --set": "layout", "--address": "address",
}
WRONG = {  # name of the case → value
    "tokenizer": {"missing": "nowhere.json", "a folder": "empty", "an empty file": "empty.json", "not a tokenizer": "notes.txt"},
    "configuration": {"missing": "nowhere.toml", "a folder": "empty", "not TOML": "notes.txt"},
    "documents": {"missing": "nowhere.jsonl", "an empty folder": "empty", "an empty file": "empty.jsonl", "of another kind": "run.toml"},
    "prompts": {"missing": "nowhere.txt", "a folder": "empty", "an empty file": "empty.json"},
    "stop string": {"empty": ""},
    "lines": {"missing": "nowhere.txt", "a folder": "empty"},
    "data": {"missing": "nowhere", "a file": "notes.txt", "an empty folder": "empty"},
    "run": {"missing": "nowhere", "an empty file": "empty.json", "an empty folder": "empty"},
    "model": {"missing": "nowhere", "a file": "notes.txt", "an empty folder": "empty"},
    "new file": {"a folder": "empty", "in no folder": "nowhere/x.json"},
    "picture": {"a folder": "folder.svg", "in no folder": "nowhere/x.svg", "of another kind": "x.png"},
    "page": {"a folder": "empty", "in no folder": "nowhere/x.html", "of another kind": "x.png"},
    "new folder": {"a file": "notes.txt", "in a file": "notes.txt/x"},
    "folder": {"missing": "nowhere", "a file": "notes.txt"},
    "setting": {"without a value": "train.steps", "of no field": "train.nonsense=1", "of a wrong type": "train.steps=many"},
    "expression": {"not an expression": "length >", "of a wrong type": "text + 1"},
    "attributes": {"without a selection": "nowhere"},
    "field": {"of no document": "nowhere"},
    "choice": {"unknown": "nonsense"},
    "sent": {"missing": "nowhere"},
    "absolute folder": {"not absolute": "empty"},
    "log": {"missing": "nowhere.log", "a folder": "empty", "an empty file": "empty.jsonl"},
    "signatures": {"missing": "nowhere.toml", "a folder": "empty", "not TOML": "notes.txt", "of another kind": "run.toml"},
    "traced tensor": {"incomplete": "dense:1", "of no model": "nonsense:1:loss:sum", "misspelled": "dense:0:initial:lm_head.wieght"},
    "program": {"missing": "nowhere", "a folder": "./empty", "a text": "./notes.txt"},
    "rows": {"missing": "nowhere", "a file": "notes.txt", "an empty folder": "empty"},
    "results": {"missing": "nowhere.json", "a folder": "empty", "not JSON": "notes.txt", "an empty file": "empty.json"},
    "results of lr-find": {"a folder": "empty", "in no folder": "nowhere/x.json", "of another kind": "x.png"},
    "results to write": {"a folder in a file": "notes.txt/x"},
    "layout": {"without a value": "parallelism", "of another table": "train.steps=1", "of a wrong type": "parallelism.expert_parallel_degree=many"},
    "address": {"a name": "localhost"},
    ANY: {},
}
NUMBERS = {"a text": "many", "too small": "-7", "too large": "99999999999999999999999"}
AUTO_NUMBERS = {"train.validation_interval"}  # whose default is "auto"

BENCH = ["--rounds", "1", "--threads", "1"]
COMMANDS = {  # a command line that works, so that only what is tried is wrong
    "tokenizer train": ["--vocab-size", "300", "--out", "new.json", "docs.jsonl"],
    "tokenizer encode": ["--tokenizer", "tokenizer.json", "lines.txt"],
    "tokenizer decode": ["--tokenizer", "tokenizer.json", "lines.txt"],
    "prepare": ["--tokenizer", "tokenizer.json", "--seq-len", "16", "--out", "new", "docs.jsonl"],
    "data info": ["data"], "data show": ["data"], "data verify": ["data"],
    "config": ["run.toml"], "train": ["run.toml"], "lr-find": ["run.toml", "--steps", "20", "--widths", "16"], "plot": ["run"], "report": ["run", "--out", "page.html"], "status": ["run"], "launch": ["--dry-run", "true"],
    "classify": ["notes.txt"], "probe": [],
    "classify": ["notes.txt"], "yeet": ["notes.txt", "--to", "new"],
    "checkpoint ls": ["run"], "checkpoint verify": ["run"], "checkpoint rm": ["run", "1"],
    "checkpoint diff": ["run/checkpoints/step-00000001", "run/checkpoints/step-00000001"],
    "export": ["run", "--out", "new"], "import": ["hf", "--out", "new"], "generate": ["run", "--prompt", "a", "--max-new-tokens", "1"],
    "eval": ["run", "--every", "--tasks", "perplexity", "--data", "texts", "--out", "scores"],
    "smoke": ["--golden-dir", "empty"], "verify": ["run.toml", "--reference", "portable", "--steps", "1", "--dry-run"],
    "bench data": ["--tokenizer", "tokenizer.json", *BENCH, "docs.jsonl"],
    "bench gemm": ["--experts", "1", "--rows", "1", "--k", "1", "--n", "1", *BENCH],
    "bench moe": ["--tokens", "1", "--hidden", "1", "--ffn", "1", "--experts", "1", "--topk", "1", *BENCH],
    "bench step": ["run.toml", "--set", "data.seq_len=16", "--no-recompute", *BENCH], "bench optimizer": ["--parameters", "1", *BENCH],
    "bench overhead": ["--hidden", "16", "--tokens", "2", *BENCH],
    "bench pipeline": ["--schedule", "1f1b", "--ranks", "1", "--microbatches", "1", "--forward-ms", "0", *BENCH],
    "bench checkpoint": ["run.toml", "--set", "data.seq_len=16", "--saves", "1"],
    "bench comm": ["--least", "1", "--most", "1", *BENCH],
}


@pytest.fixture(scope="module")
def here(athanor, tmp_path_factory):
    """A folder with everything that the command lines name."""
    folder = tmp_path_factory.mktemp("answers")
    data = make_data(athanor, folder)
    run = Run(athanor, folder, data, "llama")
    run.train("train.steps=1", "optimizer.warmup_steps=1")
    athanor.run("export", run.folder, "--out", folder / "hf")
    for name in ("empty", "folder.svg"):
        (folder / name).mkdir()
    for name in ("empty.json", "empty.jsonl"):
        (folder / name).touch()
    (folder / "notes.txt").write_text("neither JSON nor TOML\n")
    (folder / "lines.txt").write_text("[1]\n")
    (folder / "texts").mkdir()
    (folder / "texts" / "text.txt").write_text("the quick brown fox\n")
    return folder


def declared(athanor):
    return [json.loads(line) for line in athanor.run("--list-options").stdout.splitlines()]


def kind_of(row):
    return KINDS.get(f"{row['command']} {row['option']}") or KINDS.get(row["option"])


def cases_of(row):
    """Returns name of the case → value; None leaves the value out."""
    if not row["takes_value"]:
        return {"with a value": "=maybe"}
    missing = {} if row["argument"] else {"no value": None}
    if re.match(r"U?INT|FLOAT|SIZE", row["type"]):
        # Codes below 0 are those of PBS.
        return NUMBERS | ({"too small": "-7000"} if row["option"] == "--exit-code" else {}) | missing
    if "{" in row["type"] or "|" in row["type"]:
        return WRONG["choice"] | missing
    kind = kind_of(row)
    assert kind, f"athanor {row['command']} takes {row['option']}: add to KINDS what it takes"
    return WRONG[kind] | missing


def command_line(row, value):
    """Returns the working command line with this option or argument replaced."""
    words = list(COMMANDS[row["command"]])
    name = row["option"]
    if row["command"] == "launch" and not row["argument"]:  # what follows the command belongs to it
        return ["--dry-run", name] if value is None else [name + value if value.startswith("=") else f"{name}={value}", "true"]
    if row["command"] == "verify" and name not in ("--ranks", "--rank", "--json", "config", "--set"):
        words.remove("--dry-run")
    if row["argument"]:
        at = 0 if words[0][:2] != "--" else len(words) - 1
        if name in ("B", "STEP"):
            at = 1
        if row["command"] == "bench overhead":
            words.append(value)
        else:
            words[at] = value
        return words
    if value is not None and value.startswith("=") and not row["takes_value"]:
        return [*words, name + value]
    if name in words:
        at = words.index(name)
        del words[at:at + 2]
    if row["command"] == "smoke" and name in ("--trace-tensor", "--timeout"):
        words += {"--trace-tensor": ["--trace", "new"], "--timeout": ["--against", "nowhere"]}[name]
        if name == "--timeout":
            del words[:2]  # --golden-dir
    if row["command"] == "smoke" and name in ("--against",):
        del words[:2]
    if name == "--prompts":
        words = words[:1]
    if name == "--attributes" and value is not None:
        words += ["--keep", "true"] if value != "nowhere" else []
    return [*words, name] if value is None else [*words, f"{name}={value}"] if value.startswith("-") else [*words, name, value]


def cleaned(text, here):
    text = re.sub(r"(?m)^\d\d:\d\d:\d\d E ", "", text.replace(str(here) + "/", "").replace(str(here), "."))
    return text.strip()


REMEDY = re.compile(r"; |expected|needs a value|must be|there are|is required|is needed here|did you mean|would be|: here it is|there is no")


def faults_of(name, value, done, answer):
    """Returns what is wrong with an answer. A path may be named by itself."""
    found = []
    if done.returncode != 2:
        found.append(f"exit code {done.returncode}")
    if len(answer.splitlines()) != 1:
        found.append(f"{len(answer.splitlines())} lines")
    if FOREIGN.search(answer):
        found.append(f"words of a library: {FOREIGN.search(answer).group()}")
    if not REMEDY.search(answer.replace("; see athanor", "")):
        found.append("no remedy")
    if name not in answer and not (value and value in answer):
        found.append(f"{name} is not named")
    return found


def wrong_value(value, is_number):
    """Returns values of a wrong type and out of range for a field with this default; None if none is out of range.
    With is_number the field takes a number although its default is "auto"."""
    if isinstance(value, bool):
        return '"many"', None
    if value == "auto" and is_number:
        return '"many"', "-9000000000000000000"
    if isinstance(value, (int, float)):
        return '"many"', "-1e300" if isinstance(value, float) else "-9000000000000000000"
    return "17", '"nonsense"' if isinstance(value, str) else None


def field_cases(athanor):
    """Yields (field, case, TOML value)."""
    fields = tomllib.loads(athanor.run("config", "--brief").stdout)
    lists = {"train.stages": "[[train.stages]]", "data.sources": "[[data.sources]]", "faults.plan": "[[faults.plan]]",
             "train.batch_ramp": "[[train.batch_ramp]]", "optimizer.groups": "[[optimizer.groups]]"}

    def walk(table, prefix):
        for key, value in table.items():
            if isinstance(value, dict):
                yield from walk(value, f"{prefix}{key}.")
            elif f"{prefix}{key}" not in lists:
                yield f"{prefix}{key}", value

    for name, value in walk(fields, ""):
        of_type, of_range = wrong_value(value, name in AUTO_NUMBERS)
        yield name, "of a wrong type", of_type
        yield name, "without a value", ""
        if of_range:
            yield name, "out of range", of_range


def item_fields(athanor):
    """Returns list of tables → its fields with their defaults; `athanor config` shows one as a comment for each list."""
    found, current = {}, None
    for line in athanor.run("config").stdout.splitlines():
        if match := re.fullmatch(r"# \[\[(.*)\]\]", line):
            current = found.setdefault(match.group(1), {})
        elif match := re.fullmatch(r"# (\w+) = (.*)", line):
            if current is not None:
                current[match.group(1)] = tomllib.loads(f"v = {match.group(2)}")["v"]
        elif not line.startswith("#"):
            current = None
    assert set(found) == {"train.stages", "train.batch_ramp", "optimizer.groups", "data.sources", "faults.plan"} and all(found.values()), found
    return found


def item_rows(athanor, here):
    rows = []
    for of_range in (False, True):
        for name, fields in item_fields(athanor).items():
            values = {key: wrong_value(value, False)[of_range] for key, value in fields.items()}
            values = {key: value for key, value in values.items() if value and (not of_range or value != '"nonsense"')}
            item = ", ".join(f"{key}={value}" for key, value in values.items())
            done = athanor.run("config", "--set", f"{name}=[{{{item}}}]", check=False, cwd=here)
            lines = cleaned(done.stderr, here).splitlines()
            for key, value in values.items():
                field = f"{name}[0].{key}"
                answer = [re.sub(r"^--set .*?\]: ", "", line) for line in lines if f": {field}: " in line]
                rows.append((field, "out of range" if of_range else "of a wrong type", done, "\n".join(answer), value))
    return rows


def ask(athanor, here, words):
    done = athanor.run(*words, check=False, cwd=here, env=dict(os.environ, OMP_NUM_THREADS="1"), input="")
    return done, re.sub(r"\bnew-\d+", "new", cleaned(done.stderr, here))


def option_tasks(athanor):
    """Returns (option, case, value, command line) of each wrong value of each option."""
    tasks = []
    for row in declared(athanor):
        if not row["command"]:
            continue
        for case, value in cases_of(row).items():
            words = [*row["command"].split(), *command_line(row, value)]
            # Commands that run at the same time may not write to one folder.
            words = [f"new-{len(tasks)}" if word == "new" else word for word in words]
            tasks.append((row, case, value, words))
    return tasks


# What these find out after they read the command line costs the start of libtorch, a third of a second.
WITH_LIBTORCH = {"train", "lr-find", "generate", "eval", "export", "import", "verify", "smoke", "bench step", "bench overhead",
                 "bench checkpoint", "bench pipeline"}
OF_THE_COMMAND_LINE = {*NUMBERS, "no value", "with a value"}


def answered_late(row, case):
    """Whether the answer comes from a command that has started libtorch, and not from the command line."""
    of_a_list = "{" in row["type"] or "|" in row["type"]
    return row["command"] in WITH_LIBTORCH and case not in OF_THE_COMMAND_LINE and not of_a_list


def diagonal(tasks):
    """A wrong value of each option of each command and each wrong value of each kind, as far as these need no libtorch; and a wrong value
    of each kind that only commands with libtorch take."""
    early = [task for task in tasks if not answered_late(*task[:2])]
    late = [task for task in tasks if answered_late(*task[:2])]
    of_options = {}
    for task in early:
        of_options.setdefault((task[0]["command"], task[0]["option"]), []).append(task)
    chosen = [of_option[i % len(of_option)] for i, of_option in enumerate(of_options.values())]
    what = lambda task: (kind_of(task[0]) or task[0]["type"].split(":")[0][:4], task[1])
    seen = {what(task) for task in chosen}
    for task in early:
        if what(task) not in seen:
            seen.add(what(task))
            chosen.append(task)
    kinds, of_kinds = {kind for kind, _ in seen - {(kind, "no value") for kind, _ in seen}}, {}
    for task in late:
        if kind_of(task[0]) not in kinds:
            of_kinds.setdefault(kind_of(task[0]), []).append(task)
    return chosen, [of_kind[i % len(of_kind)] for i, of_kind in enumerate(of_kinds.values())]


def option_rows(athanor, here, tasks):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda task: ask(athanor, here, task[3]), tasks))
    return [(f"{row['command']} {row['option']}", case, done, answer, faults_of(row["option"], value, done, answer))
            for (row, case, value, _), (done, answer) in zip(tasks, answers, strict=True)]


def field_rows(athanor, here):
    """All fields are given wrongly at once, since all answers come at once."""
    rows = []
    cases = list(field_cases(athanor))
    for case in ("of a wrong type", "without a value", "out of range"):
        chosen = [(name, value) for name, kind, value in cases if kind == case]
        settings = [part for name, value in chosen for part in ("--set", f"{name}={value}")]
        done = athanor.run("config", *settings, check=False, cwd=here)
        lines = cleaned(done.stderr, here).splitlines()
        for name, value in chosen:
            answer = [line for line in lines if re.search(rf": {re.escape(name)}: ", line)]
            rows.append((name, case, done, "\n".join(answer), value))
    return rows


def as_page(options, fields):
    lines = ["# Answers to wrong options and wrong fields", "",
             "`tests/interop/test_answers.py` writes this page and checks it: every option of every command and every field of the",
             "configuration, given wrongly, and the answer (the exit code is 2).", "", "| option | given | answer |", "|---|---|---|"]
    return "\n".join([*lines, *lines_of(options), *FIELD_HEAD, *lines_of(row for row in fields if row[3])]) + "\n"


FIELD_HEAD = ["", "| field | given | answer |", "|---|---|---|"]


def lines_of(rows):
    cell = lambda text: text.replace("|", "\\|").replace("\n", " ")
    return [f"| {name} | {case} | {cell(answer)} |" for name, case, _, answer, _ in rows]


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


NOT_UP_TO_DATE = "answers.md is not up to date: run this file with ATHANOR_WRITE_ANSWERS=1, and read the difference"


def bad_options(rows):
    return [f"athanor {name}, {case}: {', '.join(faults)}: {answer[:300]}" for name, case, _, answer, faults in rows if faults]


def bad_fields(rows):
    return [f"{name} {case} ({value}): {answer or 'no answer'}" for name, case, _, answer, value in rows
            if FOREIGN.search(answer) or (case == "of a wrong type" and not answer)]


@pytest.mark.slow
def test_every_wrong_option_and_field_is_answered_in_one_plain_line(athanor, here):
    before = listing(here)
    options, fields = option_rows(athanor, here, option_tasks(athanor)), field_rows(athanor, here) + item_rows(athanor, here)
    page = as_page(options, fields)
    if os.environ.get("ATHANOR_WRITE_ANSWERS"):
        PAGE.write_text(page)
    bad = bad_options(options) + bad_fields(fields)
    assert not bad, f"{len(bad)} of {len(options) + len(fields)}:\n" + "\n".join(bad)
    assert listing(here) == before, "something was written"
    assert page == PAGE.read_text(), NOT_UP_TO_DATE


@pytest.mark.parametrize("late", [False, True], ids=["by the command line", "by commands with libtorch"])
def test_a_wrong_value_of_each_option_is_answered_in_one_plain_line(athanor, here, late):
    """The diagonal of the test above: fewer values for each option, and the same answers as the page has."""
    before = listing(here)
    tasks = option_tasks(athanor)
    rows = option_rows(athanor, here, diagonal(tasks)[late])
    bad = bad_options(rows)
    assert rows and not bad, f"{len(bad)} of {len(rows)}:\n" + "\n".join(bad)
    assert listing(here) == before, "something was written"
    page = PAGE.read_text().split("\n".join(FIELD_HEAD))[0].splitlines()
    assert not set(lines_of(rows)) - set(page), NOT_UP_TO_DATE
    named = [tuple(line.split(" | ")[:2]) for line in page if line.startswith("| ")][1:]
    assert named == [(f"| {row['command']} {row['option']}", case) for row, case, _, _ in tasks], NOT_UP_TO_DATE


def test_every_wrong_field_is_answered_in_one_plain_line(athanor, here):
    before = listing(here)
    rows = field_rows(athanor, here) + item_rows(athanor, here)
    bad = bad_fields(rows)
    assert rows and not bad, f"{len(bad)} of {len(rows)}:\n" + "\n".join(bad)
    assert listing(here) == before, "something was written"
    assert lines_of(row for row in rows if row[3]) == PAGE.read_text().split("\n".join(FIELD_HEAD) + "\n")[1].splitlines(), NOT_UP_TO_DATE
