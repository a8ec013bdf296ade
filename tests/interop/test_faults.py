"""ATHANOR_FAULT: armed faults are reported at start, and a meaningless value is refused before anything is done."""
import os

import pytest


def run(athanor, faults, *arguments, **environment):
    return athanor.run(*arguments, check=False, env={**os.environ, "ATHANOR_FAULT": faults, **environment})


@pytest.mark.parametrize("arguments", [["--version"], ["config", "--help"], ["verify", "--plant", "list"]])
def test_a_program_with_anything_armed_says_so_on_one_line(athanor, arguments):
    done = run(athanor, "checkpoint.piece:kill@3,files.write:enospc@2+", *arguments)
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert "FAIL ON PURPOSE" in done.stderr
    assert "checkpoint.piece:kill@3" in done.stderr and "files.write:enospc@2+" in done.stderr


def test_a_program_without_faults_says_nothing(athanor):
    assert run(athanor, "", "--version").stderr == ""


@pytest.mark.parametrize("faults, said", [
    ("checkpoint.peice:kill", 'did you mean "checkpoint.piece"?'),
    ("checkpoint.piece:kil", 'did you mean "kill"?'),
    ("checkpoint.piece", "is not NAME:ACTION"),
    ("checkpoint.piece:kill@many", "the number of the pass"),
    ("train.after_step:enospc", "answers no error"),
    ("norm.one_shard:plant", "no fault point is called"),
])
def test_what_means_nothing_is_refused_before_anything_is_done(athanor, tmp_path, faults, said):
    text = tmp_path / "run.toml"
    text.write_text("[model]\nfamily = \"olmo\"\n")
    done = run(athanor, faults, "config", text)
    assert done.returncode == 2
    assert said in done.stderr and len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_command_line_that_is_refused_is_refused_without_announcing_faults(athanor):
    done = run(athanor, "train.after_step:kill@9", "train", "--no-such-option")
    assert done.returncode == 2 and "--no-such-option" in done.stderr and "FAIL ON PURPOSE" not in done.stderr, done.stderr


@pytest.mark.parametrize("words", [["train"], ["verify"], ["verify", "--dry-run", "--ranks", "2"], ["config"], ["bench", "step"]],
                         ids=" ".join)
def test_a_configuration_that_is_refused_is_refused_without_announcing_faults(athanor, tmp_path, words):
    text = tmp_path / "run.toml"
    text.write_text("[model]\nfamily = \"olmo\"\nhiden_size = 8\n")
    done = run(athanor, "train.after_step:kill@9", *words, text)
    assert done.returncode == 2 and "hiden_size" in done.stderr and "FAIL ON PURPOSE" not in done.stderr, done.stderr


@pytest.mark.parametrize("words", [["train"], ["bench", "step"]], ids=" ".join)
def test_a_layout_or_a_size_that_is_refused_later_is_refused_without_announcing_faults(athanor, tmp_path, words):
    text = tmp_path / "run.toml"
    text.write_text("[model]\nfamily = \"olmo\"\n[data]\nseq_len = 64\npath = \"none\"\n[parallelism]\n"
                    f"tensor_parallel_degree = 2\n[train]\nrun_dir = \"{tmp_path}/run\"\n")
    done = run(athanor, "train.after_step:kill@9", *words, text)
    assert done.returncode == 2 and "degrees" in done.stderr and "FAIL ON PURPOSE" not in done.stderr, done.stderr


@pytest.mark.parametrize("words", [["verify", "--dry-run", "--ranks", "2"], ["config"]], ids=" ".join)
def test_a_configuration_that_is_accepted_announces_them_once(athanor, tmp_path, words):
    text = tmp_path / "run.toml"
    text.write_text("[model]\nfamily = \"olmo\"\n[data]\nseq_len = 64\n")
    done = run(athanor, "train.after_step:kill@9", *words, text)
    assert done.returncode == 0 and done.stderr.count("FAIL ON PURPOSE") == 1, done.stderr


def test_of_a_launched_job_rank_0_alone_speaks(athanor):
    for rank, lines in ((0, 1), (1, 0)):
        done = run(athanor, "train.after_step:kill@9", "--version", OMPI_COMM_WORLD_RANK=str(rank), OMPI_COMM_WORLD_SIZE="2")
        assert len(done.stderr.splitlines()) == lines
