"""What the program answers to command lines that it does not understand, and to paths of the wrong kind."""
import os
import pathlib
import subprocess

import pytest
from runs import Run, make_data

RECIPE = pathlib.Path(__file__).resolve().parents[2] / "recipes" / "olmoe-tiny.toml"


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("words, answer", [
    (["prepare", "--tokeniser", "x"], "unknown option --tokeniser (did you mean \"--tokenizer\"?); see athanor prepare --help"),
    (["export", "--dtyp", "bf16", "x"], "unknown option --dtyp (did you mean \"--dtype\"?); see athanor export --help"),
    (["prepare", "--out", "x", "--tokenizer", "t", "--seqlen", "3", "i"], "unknown option --seqlen (did you mean \"--seq-len\"?)"),
    (["generate", "x", "--prompt", "a", "--temperature", "-1"], "--temperature: expected a number from 0 to 1000, got -1"),
    (["generate", __file__, "--prompt", "a"], "is a file; name a run folder, a checkpoint or a folder of transformers"),
    (["verify", str(RECIPE), "--set", "parallelism.expert_parallel_degree=4"], "start the command with `mpirun -n 4`"),
    (["train", str(RECIPE), "--set", "parallelism.expert_parallel_degree=4"], "start the command with `mpirun -n 4`"),
    (["train", str(RECIPE), "--set", "parallelism.tensor_parallel_degree=2", "--set", "parallelism.pipeline_parallel_degree=3"],
     "the degrees of parallelism need 6 ranks or more, and there is one: start the command with `mpirun -n 6`"),
    (["train", str(RECIPE), "--set", "train.max_steps=5"], "unknown key train.max_steps: here it is train.steps"),
    (["train", str(RECIPE), "--optimizer.lr=1e-3"], "unknown option --optimizer.lr; a field of the configuration is set by --set optimizer.lr=1e-3"),
])
def test_what_people_mistype_is_answered_in_plain_words(athanor, words, answer):
    done = athanor.run(*words, check=False)
    assert done.returncode == 2 and answer in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("flag", ["-v", "-V", "--version"])
def test_every_spelling_of_version_prints_it(athanor, flag):
    assert athanor.run(flag).stdout.startswith("athanor 0.")


def test_a_link_to_nothing_is_named_as_run_folder(athanor, tmp_path, data):
    (tmp_path / "run").symlink_to(tmp_path / "nowhere")
    run = Run(athanor, tmp_path, data)
    done = run.train(check=False)
    assert done.returncode == 2
    assert f"run is a link to {tmp_path}/nowhere, which does not exist" in done.stderr


def test_a_tokenizer_is_not_replaced_unasked(athanor, tmp_path):
    (tmp_path / "text.txt").write_text("some text of words and words " * 50)
    out = tmp_path / "tokenizer.json"
    out.write_text("mine")
    words = ["tokenizer", "train", "--vocab-size", "260", "--out", out, tmp_path / "text.txt"]
    done = athanor.run(*words, check=False)
    assert done.returncode == 2 and f"{out} exists; choose another --out, or give --overwrite" in done.stderr
    assert out.read_text() == "mine"
    athanor.run(*words, "--overwrite")
    assert out.read_text() != "mine"


def test_a_file_that_cannot_be_written_is_refused_before_the_documents_are_read(athanor, tmp_path):
    read_only = tmp_path / "read-only"
    read_only.mkdir(mode=0o555)
    closed = next((str(folder) for folder in (read_only, "/proc/sys") if not os.access(folder, os.W_OK)), None)
    refusals = {str(tmp_path): f"expected a file to write, got {tmp_path}, which is a folder",
                f"{tmp_path}/nowhere/t.json": f"make the folder {tmp_path}/nowhere"}
    if closed:  # root may write almost everywhere
        refusals[f"{closed}/t.json"] = f"got {closed}/t.json; the folder {closed} does not allow it"
    for out, answer in refusals.items():
        done = athanor.run("tokenizer", "train", "--vocab-size", "260", "--overwrite", "--out", out, tmp_path / "no-documents.txt", check=False)
        assert done.returncode == 2 and answer in done.stderr, done.stderr


@pytest.mark.parametrize("command", ["train", "lr-find"])
def test_a_run_folder_in_place_of_its_configuration_is_answered_with_the_file(athanor, tmp_path, command):
    (tmp_path / "config.toml").touch()
    done = athanor.run(command, tmp_path, check=False)
    assert done.returncode == 2 and f"{tmp_path} is a folder; did you mean {tmp_path}/config.toml?" in done.stderr


@pytest.mark.parametrize("words", [["data", "info", "DATA"], ["data", "verify", "DATA"], ["eval", "--list"], ["config"]], ids=" ".join)
def test_results_that_cannot_be_written_are_a_failure(athanor, data, words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [athanor.path, *(data if word == "DATA" else word for word in words)], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            timeout=300
        )
    assert done.returncode == 2
    assert "cannot write to standard output: No space left on device" in done.stderr


def test_a_pipe_is_not_waited_for_where_a_file_is_needed(athanor, tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    done = athanor.run("plot", tmp_path / "metrics.jsonl", check=False)
    assert done.returncode == 2 and "metrics.jsonl: it is a pipe, and a file is needed" in done.stderr


def test_a_folder_of_data_is_no_model(athanor, data):
    done = athanor.run("generate", data, "--prompt", "a", check=False)
    assert done.returncode == 2 and "is a folder of prepared data, not of a model" in done.stderr


def test_a_name_that_is_too_long_is_the_users_input(athanor):
    done = athanor.run("generate", "a" * 300, "--prompt", "a", check=False)
    assert done.returncode == 2 and "cannot use " in done.stderr and "File name too long" in done.stderr, done.stderr
