"""`-` names standard input wherever documents, lines or a prompt are read."""
import gzip
import hashlib
import json
import os
import pty
import subprocess

import pytest
from runs import EOS, Run, make_data


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def tokenizer(data):
    return data.parent / "tokenizer.json"


@pytest.fixture(scope="module")
def documents(data):
    return data.parent / "docs.jsonl"


def prepare(athanor, tokenizer, out, *words, check=True, **options):
    return athanor.run("prepare", "--tokenizer", tokenizer, "--seq-len", 16, "--out", out, *words, check=check, **options)


def shards(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.npy"))}


@pytest.fixture(scope="module")
def expected(athanor, tokenizer, documents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected") / "out"
    prepare(athanor, tokenizer, folder, documents)
    return shards(folder)


@pytest.mark.parametrize("words", [["--threads", 1], ["--threads", 3, "--memory", "128M"]])
def test_documents_of_standard_input_make_the_shards_of_their_file(athanor, tokenizer, documents, expected, tmp_path, words):
    prepare(athanor, tokenizer, tmp_path / "out", "--format", "jsonl", *words, "-", input=documents.read_text())
    assert shards(tmp_path / "out") == expected
    assert "standard input: 200 documents" in athanor.run("data", "info", tmp_path / "out").stdout
    assert "whole" in athanor.run("data", "verify", tmp_path / "out").stdout


def test_standard_input_may_be_compressed_or_one_text(athanor, tokenizer, documents, expected, tmp_path):
    with open(tmp_path / "docs.gz", "wb") as file:
        file.write(gzip.compress(documents.read_bytes()))
    with open(tmp_path / "docs.gz", "rb") as file:
        prepare(athanor, tokenizer, tmp_path / "gz", "--format", "jsonl.gz", "-", stdin=file)
    assert shards(tmp_path / "gz") == expected
    prepare(athanor, tokenizer, tmp_path / "txt", "--format", "txt", "-", input="the quick brown fox\njumps over\n" * 20)
    assert json.loads((tmp_path / "txt" / "manifest.json").read_text())["documents"] == 1


def test_standard_input_stands_among_files_and_may_be_added_again(athanor, tokenizer, documents, tmp_path):
    prepare(athanor, tokenizer, tmp_path / "out", "--format", "jsonl", "-", documents, input='{"text": "the fox"}\n')
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert {entry["path"]: entry["documents"] for entry in manifest["inputs"]} == {"-": 1, str(documents): 200}
    add = ["prepare", "--add", "--out", tmp_path / "out", "--format", "jsonl", "-"]
    athanor.run(*add, input='{"text": "another one"}\n')
    athanor.run(*add, input='{"text": "and more"}\n{"text": "of them"}\n')
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["documents"] == 204


@pytest.mark.parametrize("words, text, answer", [
    (["-"], "", "- (standard input) has no name that tells what it holds: add --format jsonl"),
    (["--format", "jsonl", "-", "-"], "", "- (standard input) is named 2 times, and can be read only once"),
    (["--format", "jsonl", "DOCUMENTS"], "", "--format is for standard input (-), which is not among the inputs"),
    (["--format", "parquet", "-"], "", "Parquet is read from its end and needs a file"),
    (["--format", "csv", "-"], "", "--format csv: expected jsonl"),
    (["--format", "jsonl", "--attributes", "a", "--keep", "true", "-"], "", "--attributes are found by the documents' file"),
    (["--format", "jsonl", "-"], "", "standard input is empty"),
    (["--format", "jsonl", "-"], '{"text": "a"}\n{"txt"\n', "standard input:2: invalid JSON at byte"),
    (["/dev/stdin"], '{"text": "a"}\n', "a pipe is read as - (standard input), with --format"),
])
def test_what_standard_input_cannot_be_is_said_in_one_line(athanor, tokenizer, documents, tmp_path, words, text, answer):
    words = [documents if word == "DOCUMENTS" else word for word in words]
    done = prepare(athanor, tokenizer, tmp_path / "out", *words, check=False, input=text)
    assert done.returncode == 2 and answer in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_stopped_run_says_that_a_pipe_has_to_be_given_again(athanor, tokenizer, documents, expected, tmp_path):
    lines = documents.read_text() * 50  # more than a chunk and the pipe's buffer, so that it has begun to read
    command = [athanor.path, "prepare", "--tokenizer", tokenizer, "--seq-len", 16, "--out", tmp_path / "out", "--format", "jsonl", "-"]
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write(lines)
    process.stdin.flush()
    process.terminate()
    said = process.communicate(timeout=300)[1]  # ends the input
    assert process.returncode == 143
    assert "stopped; run the same command again, with standard input from its beginning" in said
    assert list(tmp_path.iterdir()) == []
    prepare(athanor, tokenizer, tmp_path / "out", "--format", "jsonl", "-", input=documents.read_text())
    assert shards(tmp_path / "out") == expected


def test_a_killed_run_reads_standard_input_anew_and_keeps_its_files(athanor, tokenizer, documents, tmp_path):
    environment = dict(os.environ, ATHANOR_FAULT="prepare.before_gather:kill@1")
    words = ["--format", "jsonl", "-", documents]
    prepare(athanor, tokenizer, tmp_path / "out", *words, input='{"text": "the fox"}\n', check=False, env=environment)
    done = prepare(athanor, tokenizer, tmp_path / "out", *words, input='{"text": "another"}\n{"text": "text"}\n')
    assert "1 of 2 files" in done.stderr
    prepare(athanor, tokenizer, tmp_path / "new", *words, input='{"text": "another"}\n{"text": "text"}\n')
    assert shards(tmp_path / "out") == shards(tmp_path / "new")


def on_terminal(command, typed):
    """Runs a command whose standard input is a terminal; returns what it printed."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0) as terminal:
        process = subprocess.Popen([str(word) for word in command], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        os.close(theirs)
        terminal.write(typed.encode() + b"\x04")
        return process.communicate(timeout=300)[0]


def test_on_a_terminal_it_is_said_what_is_awaited(athanor, tokenizer, tmp_path):
    out = on_terminal([athanor.path, "tokenizer", "encode", "--tokenizer", tokenizer], "the fox\n")
    assert "reading lines from this terminal; Ctrl-D" in out and "[" in out
    out = on_terminal([athanor.path, "prepare", "--tokenizer", tokenizer, "--seq-len", "4", "--out", tmp_path / "out", "--format", "jsonl",
                       "-"], '{"text": "the quick brown fox jumps"}\n')
    assert "reading documents from this terminal" in out and "1 documents" in out


def test_a_tokenizer_learns_from_standard_input_what_it_learns_from_the_file(athanor, documents, tmp_path):
    words = ["tokenizer", "train", "--vocab-size", 300]
    athanor.run(*words, "--out", tmp_path / "file.json", documents)
    athanor.run(*words, "--out", tmp_path / "pipe.json", "--format", "jsonl", "-", input=documents.read_text())
    assert (tmp_path / "pipe.json").read_bytes() == (tmp_path / "file.json").read_bytes()
    done = athanor.run(*words, "--out", tmp_path / "none.json", "-", check=False, input="")
    assert done.returncode == 2 and "add --format jsonl" in done.stderr


def test_lines_are_encoded_alike_from_a_file_from_a_dash_and_without_one(athanor, tokenizer, tmp_path):
    (tmp_path / "lines").write_text("the quick\nbrown fox\n")
    words = ["tokenizer", "encode", "--tokenizer", tokenizer]
    ids = athanor.run(*words, input="the quick\nbrown fox\n").stdout
    assert athanor.run(*words, "-", input="the quick\nbrown fox\n").stdout == ids
    assert athanor.run(*words, tmp_path / "lines").stdout == ids
    (tmp_path / "lines").write_bytes(b"\xef\xbb\xbfthe quick\r\nbrown fox\r\n")
    assert athanor.run(*words, tmp_path / "lines").stdout == ids, "a byte-order mark and carriage returns are no text"
    assert athanor.run("tokenizer", "decode", "--tokenizer", tokenizer, "-", input=ids).stdout == "the quick\nbrown fox\n"
    done = athanor.run(*words, tmp_path, check=False)
    assert done.returncode == 2 and f"{tmp_path} is a folder; name a file of lines" in done.stderr


def test_a_prompt_of_standard_input_is_the_text_without_its_last_newline(athanor, data, tmp_path):
    run = Run(athanor, tmp_path, data, "llama")
    run.train("train.steps=1", "optimizer.warmup_steps=1")
    words = ["generate", run.folder, "--max-new-tokens", 3, "--temperature", 0, "--json"]
    expected = athanor.run(*words, "--prompt", "the quick\nfox", "--prompt", "it").stdout
    assert athanor.run(*words, "--prompt", "-", "--prompt", "it", input="the quick\nfox\n").stdout == expected
    for given, text, answer in [(["-", "-"], "a", "--prompt - (standard input) is given 2 times"),
                                (["-"], b"a\xff", "--prompt -: standard input has invalid UTF-8 at byte 1")]:
        prompts = [part for prompt in given for part in ("--prompt", prompt)]
        done = subprocess.run([str(word) for word in [athanor.path, *words, *prompts]], capture_output=True,
                              input=text if isinstance(text, bytes) else text.encode())
        assert done.returncode == 2 and answer in done.stderr.decode()
