"""What `cmake --install` makes: a program that runs, libraries that other programs link, and the two examples on them.

The build folder is not needed any more: no run path names it.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest
import torch
from conftest import ROOT, Program
from rounding import Reference
from runs import EOS, Run, make_data
from test_transformers_parity import disturb_rotation, in_double
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, LlamaConfig

sys.path.insert(0, str(ROOT / "tests" / "mpi"))
import launchers  # noqa: E402

LINES = ["the quick brown fox", "jumps over the lazy dog " * 12, "é 漢字", "and runs from it, again and again"]
WITH_LIBTORCH = {"blocks/library/sparse_layer.h"}
SHORT = ["train.steps=2", "optimizer.warmup_steps=1"]
POSITIONS = 64  # the most that the model takes; the second line has more tokens


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def build(athanor):
    folder = athanor.path.parent
    if not (folder / "cmake_install.cmake").exists():
        pytest.skip(f"{folder} is no build folder of CMake")
    return folder


@pytest.fixture(scope="module")
def prefix(build, tmp_path_factory):
    """A folder with everything installed."""
    folder = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", build, "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def installed(prefix):
    return Program(prefix / "bin" / "athanor")


@pytest.fixture(scope="module")
def data(installed, tmp_path_factory):
    return make_data(installed, tmp_path_factory.mktemp("data"))


def build_example(name, prefix, folder, *options):
    run("cmake", "-S", ROOT / "examples" / name, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug", *options)
    run("cmake", "--build", folder)
    program, = (path for path in folder.iterdir() if path.is_file() and os.access(path, os.X_OK))
    return Program(program)


def libraries(prefix):
    found = [path for path in (prefix / "lib").rglob("lib*.so*") if not path.is_symlink()]
    assert found
    return found


def functions(library):
    """The functions and objects that a library defines for others, without those that every user of a header defines."""
    lines = run("nm", "-D", "--defined-only", library).splitlines()
    return {name for name, kind in ((line.split()[2], line.split()[1]) for line in lines) if kind in "TDBR"}


def test_no_run_path_names_the_build_folder(prefix, build):
    for file in [prefix / "bin" / "athanor", *libraries(prefix)]:
        paths = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", run("readelf", "-d", file))
        for path in ":".join(paths).split(":"):
            assert not path.startswith(str(build)), (file, paths)
            assert not path or path.startswith(("/", "$ORIGIN")), (file, paths)
    found = run("ldd", prefix / "bin" / "athanor")
    assert str(prefix) in found and str(build) not in found and "libtorch" not in found, found
    for library in libraries(prefix):
        assert "not found" not in run("ldd", library), library


def test_nothing_is_defined_in_both_libraries(prefix):
    core = prefix / "lib" / "libathanor_core.so"
    if not core.exists():
        pytest.skip("built without the core")
    both = functions(prefix / "lib" / "libathanor.so") & functions(core)
    assert not {name for name in both if "athanor" in name}


def test_public_headers_include_nothing_that_is_not_installed(prefix, tmp_path):
    root = prefix / "include" / "athanor"
    headers = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.h"))
    assert "tokenizer/tokenizer.h" in headers
    for header in headers:
        for included in re.findall(r'#include "(.*)"', (root / header).read_text()):
            assert included in headers, f"{header} includes {included}"
        if header not in WITH_LIBTORCH:
            assert not re.search(r"#include <(ATen|torch|c10)/", (root / header).read_text()), header
    headers = [header for header in headers if header not in WITH_LIBTORCH]
    every = tmp_path / "every.cpp"
    every.write_text("".join(f'#include "{header}"\n' for header in headers))
    run("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{root}", every)


def test_the_installed_program_is_that_of_the_build(installed, athanor):
    assert installed.run("--version").stdout == athanor.run("--version").stdout
    golden = installed.path.parents[1] / "share" / "athanor" / "golden"
    assert {path.name for path in golden.iterdir()} == {path.name for path in (ROOT / "tests" / "golden").iterdir()}
    tasks = golden.parent / "tasks"
    assert {path.name for path in tasks.iterdir()} == {path.name for path in (ROOT / "tasks").iterdir()}


def test_the_installed_program_trains(installed, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    training = Run(installed, tmp_path, data)
    training.train(*SHORT)
    assert [line["step"] for line in training.metrics()] == [1, 2]


@pytest.mark.parametrize("kind", ["Open MPI", "MPICH"])
def test_the_installed_program_trains_on_two_ranks(installed, prefix, data, tmp_path, monkeypatch, kind):
    launcher = launchers.find(kind)
    if launcher is None or not launchers.plugin(prefix / "lib" / "libathanor.so", kind).exists():
        pytest.skip(f"no mpirun of {kind}, or no plugin for it")
    monkeypatch.chdir(tmp_path)
    training = Run(installed, tmp_path, data)
    settings = [part for setting in SHORT for part in ("--set", setting)]
    code, out, err, _ = launcher.run(2, installed.path, "train", training.config, *settings)
    assert code == 0, out + err
    start = json.loads((training.folder / "events.jsonl").read_text().splitlines()[0])
    assert start["ranks"] == 2 and kind in start["mpi"]


@pytest.mark.slow  # libtorch is half a gigabyte
def test_the_installed_program_is_sent_with_every_library_that_is_not_of_the_system(installed, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    training = Run(installed, tmp_path, data)
    settings = [part for setting in SHORT for part in ("--set", setting)]
    local = tmp_path / "local"
    run(installed.path, "launch", "-n", 1, "--launcher", "sockets", "--yeet", local, "--", installed.path, "train", training.config, *settings)
    assert [line["step"] for line in training.metrics()] == [1, 2]
    for file in (local / "bin" / "athanor", local / "lib" / "libathanor_core.so"):
        found = re.findall(r"=> (/\S+)", run("ldd", file))
        assert any(path.startswith(str(local)) for path in found), found
        assert all(path.startswith((str(local), "/lib/", "/lib64/", "/usr/lib/")) for path in found), found


@pytest.fixture(scope="module")
def encode(prefix, tmp_path_factory):
    return build_example("encode", prefix, tmp_path_factory.mktemp("encode") / "build")


def test_example_encode_gives_the_ids_of_tokenizers(encode, data, tmp_path):
    documents = data.parent / "docs.jsonl"
    said = encode.run(data.parent / "tokenizer.json", tmp_path / "ids.npy", documents).stdout
    tokenizer = Tokenizer.from_file(str(data.parent / "tokenizer.json"))
    texts = [json.loads(line)["text"] for line in documents.read_text().splitlines()]
    expected = [id for text in texts for id in tokenizer.encode(text, add_special_tokens=False).ids]
    assert numpy.load(tmp_path / "ids.npy")[0].tolist() == expected
    assert said == f"{len(texts)} documents, {len(expected)} tokens\n"
    manifest = json.loads((data / "manifest.json").read_text())
    assert manifest["documents"] == len(texts) and manifest["tokens"] == len(expected) + len(texts)  # each has its end


def test_an_error_of_the_library_is_caught_by_its_type(encode, data, tmp_path):
    done = encode.run(data.parent / "tokenizer.json", tmp_path / "ids.npy", tmp_path / "absent.jsonl", check=False)
    assert done.returncode == 1 and done.stderr.startswith("encode_corpus: ") and "absent.jsonl" in done.stderr


@pytest.mark.slow  # a program with all headers of libtorch compiles for a minute
def test_example_sparse_block_learns_what_another_layer_computes(prefix, tmp_path):
    program = build_example("sparse_block", prefix, tmp_path / "build", f"-DATHANOR_LIBTORCH={pathlib.Path(torch.__file__).parent}")
    first, last = (float(line.split()[-1]) for line in program.run().stdout.splitlines())
    assert first > 0.5 and last < 0.2 * first


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    """A small random model that `transformers` saved, with the tokenizer of the data."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer.from_file(str(data.parent / "tokenizer.json"))
    torch.manual_seed(3)
    config = LlamaConfig(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64,
                         vocab_size=320, max_position_embeddings=POSITIONS, initializer_range=0.1, pad_token_id=None,
                         bos_token_id=None, eos_token_id=tokenizer.token_to_id(EOS))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model.save_pretrained(folder)
    pathlib.Path(folder / "tokenizer.json").write_text((data.parent / "tokenizer.json").read_text())
    return folder, model, tokenizer


def score_with(model, sequences):
    """The log-probability of each sequence's tokens after its first, and how many of them are greedy."""
    sums, greedy = [], []
    with torch.no_grad():
        for ids in sequences:
            total, hits = 0, 0
            for first in range(0, len(ids) - 1, POSITIONS):
                part = torch.tensor([ids[first:first + POSITIONS + 1]])
                scores = model(part[:, :-1], use_cache=False).logits.log_softmax(-1)
                total = total + scores.gather(-1, part[:, 1:, None]).sum()
                hits += int((scores.argmax(-1) == part[:, 1:]).sum())
            sums.append(total)
            greedy.append(hits)
    return {"log_probability": torch.stack(sums)}, greedy


@pytest.fixture(scope="module")
def score(prefix, tmp_path_factory):
    return build_example("score", prefix, tmp_path_factory.mktemp("score") / "build")


def test_example_score_gives_the_log_probabilities_of_transformers(score, model, tmp_path):
    folder, theirs, tokenizer = model
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")
    rows = [line.split("\t") for line in score.run(folder, tmp_path / "lines.txt").stdout.splitlines()]

    sequences = [[theirs.config.eos_token_id, *tokenizer.encode(line, add_special_tokens=False).ids] for line in LINES]
    assert max(len(ids) for ids in sequences) > POSITIONS + 1
    double = in_double(theirs)
    reference = Reference(lambda: score_with(double, sequences)[0], disturb_rotation(double))
    scored, greedy = score_with(theirs, sequences)
    assert not reference.failures(scored), "the bound is too tight for transformers itself"
    ours = torch.tensor([float(row[0]) for row in rows], dtype=torch.float64)
    assert not (lines := reference.failures({"log_probability": ours})), "\n".join(lines)
    assert [int(row[1]) for row in rows] == [len(ids) - 1 for ids in sequences]
    assert [int(row[2]) for row in rows] == greedy
    for row, line, total in zip(rows, LINES, ours, strict=True):
        assert float(row[3]) == pytest.approx(-total.item() / numpy.log(2) / len(line.encode()), rel=1e-8)


def test_example_score_counts_only_the_bytes_of_scored_tokens_if_no_document_token_is_known(score, model, tmp_path):
    """Without it nothing precedes the first token of a text, which then has neither a score nor bytes."""
    folder, theirs, tokenizer = model
    shutil.copytree(folder, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | {"eos_token_id": None}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n")
    rows = [line.split("\t") for line in score.run(tmp_path / "model", tmp_path / "lines.txt").stdout.splitlines()]
    sequences = [tokenizer.encode(line, add_special_tokens=False).ids for line in LINES]
    assert [int(row[1]) for row in rows] == [len(ids) - 1 for ids in sequences]
    for row, line, ids in zip(rows, LINES, sequences, strict=True):
        first = len(tokenizer.decode(ids[:1]).encode())
        assert 0 < first < len(line.encode())
        assert float(row[3]) == pytest.approx(-float(row[0]) / numpy.log(2) / (len(line.encode()) - first), rel=1e-7)
