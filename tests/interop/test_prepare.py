"""Compares `athanor prepare` with numpy, `tokenizers` and a plain reading of the files, and checks its errors for bad input."""

import gzip
import hashlib
import json
import os
import random
import shutil
from collections import Counter

import numpy
import pytest
from tokenizers import Tokenizer

EOS = "<|endoftext|>"


@pytest.fixture(scope="module")
def texts(shared):
    return shared / "data" / "text"


@pytest.fixture(scope="module")
def olmo(shared):
    return shared / "data" / "tokenizers" / "allenai_gpt-neox-olmo-dolma-v1_5.json"


@pytest.fixture
def small_tokenizer(tmp_path, athanor):
    """Makes a tokenizer of a few hundred tokens, so that these tests need no shared data."""
    text = tmp_path / "for_tokenizer.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 20)
    out = tmp_path / "tokenizer.json"
    athanor.run("tokenizer", "train", "--vocab-size", 300, "--special-token", EOS, "--out", out, text)
    return out


def write_rows(path, texts, key="text"):
    path.write_text("".join(json.dumps({"id": i, key: text}) + "\n" for i, text in enumerate(texts)))
    return path


def some_texts(count, seed=0):
    rng = random.Random(seed)
    words = "the quick brown fox é 漢字 😀 \n".split(" ")
    return [" ".join(rng.choices(words, k=rng.randint(0, 60))) for _ in range(count)]


def shards(folder, split="train"):
    """Returns the split's instances in their order, each shard mapped as people would."""
    manifest = json.loads((folder / "manifest.json").read_text())
    parts = []
    for entry in manifest["splits"][split]["files"]:
        part = numpy.load(folder / entry["file"], mmap_mode="r")
        assert isinstance(part, numpy.memmap) and part.shape == (entry["instances"], manifest["seq_len"])
        assert part.dtype == numpy.dtype(manifest["dtype"])
        parts.append(part)
    return numpy.concatenate(parts)


def stream_of(tokenizer_file, documents):
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    eos = tokenizer.token_to_id(EOS)
    ids = []
    for document in documents:
        ids += tokenizer.encode(document, add_special_tokens=False).ids + [eos]
    return ids


def instances_of(stream, seq_len):
    return [tuple(stream[i : i + seq_len]) for i in range(0, len(stream) - seq_len + 1, seq_len)]


def as_counter(rows):
    return Counter(tuple(map(int, row)) for row in rows)


def content(folder, *endings):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if not endings or path.name.endswith(endings)
    }


def refused(athanor, *arguments, **options):
    """Returns the one line in which prepare refuses."""
    done = athanor.run("prepare", *arguments, check=False, **options)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if " W " not in line[:12] and "ATHANOR_FAULT is set" not in line]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_instances_equal_those_of_the_tokenizers_library(athanor, texts, olmo, tmp_path):
    inputs = tmp_path / "in"  # all in one folder: the documents are in the order of their files' paths
    shutil.copytree(texts / "dolma/multiple_files", inputs / "dolma")
    shutil.copy(texts / "blns.json", inputs)
    (inputs / "udhr.jsonl").write_text("\n".join((texts / "udhr.jsonl").read_text().split("\n")[:-1:8]) + "\n")
    (inputs / "tinyshakespeare.txt").write_bytes((texts / "tinyshakespeare.txt").read_bytes()[:100_000])
    documents = json.loads((inputs / "blns.json").read_text())
    for path in sorted((inputs / "dolma").iterdir()):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        documents += [json.loads(line)["text"] for line in data.decode().split("\n") if line]
    documents += [(inputs / "tinyshakespeare.txt").read_bytes().decode()]
    documents += [json.loads(line)["text"] for line in (inputs / "udhr.jsonl").read_text().split("\n") if line]
    arguments = ["--tokenizer", olmo, "--seq-len", 128, "--seed", 5, "--validation-fraction", 0.1]
    athanor.run("prepare", *arguments, "--out", tmp_path / "out", inputs)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    stream = stream_of(olmo, documents)
    assert manifest["documents"] == len(documents)
    assert manifest["tokens"] == len(stream)
    assert manifest["remainder_tokens"] == len(stream) % 128
    train, validation = shards(tmp_path / "out"), shards(tmp_path / "out", "validation")
    expected = instances_of(stream, 128)
    assert as_counter(train) + as_counter(validation) == Counter(expected)
    assert len(validation) == round(0.1 * len(expected))
    assert [tuple(map(int, row)) for row in train] != expected[: len(train)], "not shuffled"


def test_the_three_forms_of_the_same_rows_give_the_same_bytes(athanor, texts, olmo, tmp_path):
    rows = gzip.decompress((texts / "dolma_form/books-400.jsonl.gz").read_bytes())
    (tmp_path / "books-400.jsonl").write_bytes(rows)
    outputs = []
    form = texts / "dolma_form"
    for file in [form / "books-400.jsonl.gz", form / "books-400.jsonl.zst", tmp_path / "books-400.jsonl"]:
        out = tmp_path / file.suffix[1:]
        athanor.run("prepare", "--tokenizer", olmo, "--seq-len", 512, "--out", out, "--threads", 2, file)
        outputs.append(content(out, ".npy"))
    assert outputs[0] == outputs[1] == outputs[2]


def test_the_odd_files_of_dolma_are_read_or_named(athanor, texts, olmo, tmp_path):
    dolma = texts / "dolma"
    common = ["--tokenizer", olmo, "--seq-len", 5]
    for ending in ["", ".gz", ".zst"]:
        file = dolma / f"data/formats/test.jsonl{ending}"
        message = refused(athanor, *common, "--out", tmp_path / "x", file)
        assert f'{file}:1: no field "text"; there is message' in message
    out = tmp_path / "messages"
    athanor.run("prepare", *common, "--text-field", "message", "--out", out, dolma / "data/formats")
    assert json.loads((out / "manifest.json").read_text())["documents"] == 3
    message = refused(athanor, *common, "--out", tmp_path / "x", dolma / "warc")
    assert "no documents in this folder, only .warc.gz (2)" in message
    message = refused(athanor, *common, "--out", tmp_path / "x", dolma / "data/provided/attributes")
    assert "attributes" in message and ":1: no field" in message
    athanor.run("prepare", *common, "--out", tmp_path / "documents", dolma / "data/provided/documents/*.json.gz")
    done = athanor.run("prepare", *common, "--on-error", "skip", "--out", tmp_path / "all", dolma / "data")
    manifest = json.loads((tmp_path / "all" / "manifest.json").read_text())
    assert manifest["skipped"]["missing field"] > 10 and "missing field" in done.stdout
    assert manifest["documents"] == sum(entry["documents"] for entry in manifest["inputs"])


def test_no_byte_depends_on_the_number_of_threads(athanor, small_tokenizer, tmp_path):
    (tmp_path / "in").mkdir()
    for f in range(7):
        write_rows(tmp_path / "in" / f"{f}.jsonl", some_texts(3000 if f == 3 else 40, seed=f))
    results = []
    arguments = ["--tokenizer", small_tokenizer, "--seq-len", 32]
    arguments += ["--validation-fraction", 0.05, "--shard-bytes", 50_000]
    for threads in [1, 2, 5, 16]:
        out = tmp_path / f"out{threads}"
        athanor.run("prepare", *arguments, "--threads", threads, "--out", out, tmp_path / "in")
        results.append(content(out))
    assert len(results[0]) > 5
    assert all(result == results[0] for result in results)


def test_bad_options_and_inputs_are_refused_in_one_line(athanor, small_tokenizer, tmp_path):
    good = write_rows(tmp_path / "good.jsonl", some_texts(50))
    common = ["--tokenizer", small_tokenizer, "--seq-len", 16, "--out", tmp_path / "out"]

    def bad(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        return f"{path}", refused(athanor, *common, good, path)

    whole = gzip.compress(good.read_bytes())
    cases = [
        (*bad("cut.jsonl.gz", whole[: len(whole) // 2]), f"the file ends at byte {len(whole) // 2}"),
        (*bad("garbled.jsonl.gz", whole[:200] + bytes(50) + whole[250:]), "damaged gzip at byte"),
        (*bad("cut.jsonl.zst", bytes.fromhex("28b52ffd")), "the file ends at byte 4"),
        (*bad("json.jsonl", b'{"text": "a"}\n{"text": }\n'), ".jsonl:2: invalid JSON at byte 9"),
        (*bad("utf8.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n'), ".jsonl:2: invalid UTF-8 at byte 10"),
        (*bad("utf8.txt", b"one\ntwo\nthr\xc3e\n"), ".txt:3: invalid UTF-8 at byte 3"),
        (*bad("field.jsonl", b'{"body": "a"}\n'), '.jsonl:1: no field "text"; there is body'),
        (*bad("kind.jsonl", b'{"text": 3}\n'), '.jsonl:1: the field "text" is a number'),
        (*bad("empty.txt", b""), "is empty"),
        (*bad("blank.jsonl", b"\n\n"), "holds no documents"),
        (*bad("unknown.csv", b"a,b\n"), "unknown kind of file (.csv)"),
    ]
    for path, message, expected in cases:
        assert path in message and expected in message, message
    assert "does not exist" in refused(athanor, *common, tmp_path / "none.jsonl")
    assert str(good) in refused(athanor, "--tokenizer", good, "--seq-len", 16, "--out", tmp_path / "out", good)
    short = ["--tokenizer", small_tokenizer, "--seq-len", 1, "--out", tmp_path / "out"]
    assert "--seq-len (1)" in refused(athanor, *short, good)
    assert "skip" in refused(athanor, *common, "--on-error", "sometimes", good)
    assert "--eos" in refused(athanor, *common, "--eos", "<none>", good)
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*"))


def test_skipping_keeps_the_good_documents(athanor, small_tokenizer, tmp_path):
    texts_there = some_texts(30)
    rows = [json.dumps({"text": text}).encode() for text in texts_there]
    for at, line in [(20, b'{"text": 1}'), (10, b"{"), (5, b'{"text": "\xff"}')]:
        rows.insert(at, line)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(rows))
    out = tmp_path / "out"
    arguments = ["--tokenizer", small_tokenizer, "--seq-len", 16, "--on-error", "skip"]
    athanor.run("prepare", *arguments, "--out", out, tmp_path / "a.jsonl")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["skipped"] == {"field that is not a string": 1, "invalid JSON": 1, "invalid UTF-8": 1}
    assert as_counter(shards(out)) == Counter(instances_of(stream_of(small_tokenizer, texts_there), 16))


@pytest.mark.parametrize("nth_write", [1, 2, 3, 4, 5])
def test_a_full_disk_is_named_and_leaves_what_was_there(athanor, small_tokenizer, tmp_path, nth_write):
    rows = write_rows(tmp_path / "a.jsonl", some_texts(50))
    arguments = ["--tokenizer", small_tokenizer, "--seq-len", 16, "--threads", 1, "--out", tmp_path / "out", rows]
    athanor.run("prepare", *arguments)
    before = content(tmp_path / "out")
    full = {**os.environ, "ATHANOR_FAULT": f"files.write:enospc@{nth_write}+"}
    message = refused(athanor, *arguments, "--overwrite", "--seed", 9, env=full)
    assert "No space left on device" in message and str(tmp_path) in message
    assert content(tmp_path / "out") == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("place", ["prepare.before_gather", "prepare.before_commit"])
def test_a_killed_prepare_leaves_no_output_and_the_next_one_works(athanor, small_tokenizer, tmp_path, place):
    rows = write_rows(tmp_path / "a.jsonl", some_texts(50))
    arguments = ["--tokenizer", small_tokenizer, "--seq-len", 16, "--out", tmp_path / "out", rows]
    killed = athanor.run("prepare", *arguments, check=False, env={**os.environ, "ATHANOR_FAULT": f"{place}:kill"})
    assert killed.returncode == -9
    assert not (tmp_path / "out").exists()
    athanor.run("prepare", *arguments)
    assert not list(tmp_path.glob(".*"))
    assert len(shards(tmp_path / "out")) > 0


@pytest.mark.parametrize("option, value", [("--seed", -1), ("--seed", 10**20), ("--shard-bytes", -1), ("--memory", "-5M")])
def test_a_number_that_does_not_fit_is_refused_and_not_wrapped_around(athanor, tmp_path, option, value):
    done = athanor.run("prepare", "--tokenizer", "t.json", "--seq-len", 64, "--out", tmp_path / "out", f"{option}={value}", "d.jsonl",
                       check=False)
    assert done.returncode == 2 and str(value) in done.stderr and not (tmp_path / "out").exists(), done.stderr
