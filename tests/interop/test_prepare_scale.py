"""`athanor prepare` in trouble: killed anywhere, asked to stop, with a full disk, two at once; and within --memory."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from documents import write_documents
from test_prepare import EOS, content, refused

# Enough for several chunks of several files, several shards, and buckets in more than one pass at LEAST of memory.
NUM_BYTES = 6_000_000


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    write_documents(folder, NUM_BYTES, num_files=3)
    return folder


@pytest.fixture(scope="module")
def tokenizer(athanor, documents, tmp_path_factory):
    out = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    text = out.with_name("text.txt")
    text.write_text((documents / "000.jsonl").read_text()[:100_000])
    athanor.run("tokenizer", "train", "--vocab-size", 400, "--special-token", EOS, "--out", out, text)
    return out


@pytest.fixture(scope="module")
def arguments(tokenizer, documents):
    common = ["--tokenizer", tokenizer, "--seq-len", 64, "--validation-fraction", 0.02, "--shard-bytes", "300K"]
    return [*common, "--threads", 2, documents]


@pytest.fixture(scope="module")
def whole(athanor, arguments, tmp_path_factory):
    """Makes the result of a run without disturbance."""
    out = tmp_path_factory.mktemp("whole") / "out"
    athanor.run("prepare", *arguments, "--out", out)
    return content(out)


def prepare(athanor, *arguments, fault=None, check=True):
    env = {**os.environ, **({"ATHANOR_FAULT": fault} if fault else {})}
    return athanor.run("prepare", *arguments, check=check, env=env)


@pytest.mark.parametrize(
    "place",
    ["prepare.chunk:kill@1", "prepare.chunk:kill@5", "prepare.before_gather:kill", "prepare.shard:kill@1", "prepare.shard:kill@7",
     "files.write:kill@9", "prepare.before_commit:kill", "prepare.committed:kill"],
)  # fmt: skip
def test_a_killed_run_goes_on_and_makes_the_same_bytes(athanor, arguments, whole, tmp_path, place):
    out = tmp_path / "out"
    assert prepare(athanor, *arguments, "--out", out, fault=place, check=False).returncode == -signal.SIGKILL
    assert out.exists() == ("committed" in place)
    done = prepare(athanor, *arguments, "--out", out)
    assert content(out) == whole
    assert os.listdir(tmp_path) == ["out"]
    if "before_gather" in place:
        assert "continuing with" in done.stderr and "3 of 3 files" in done.stderr, done.stderr


def test_killed_again_and_again_it_ends_with_the_same_bytes(athanor, arguments, whole, tmp_path):
    out = tmp_path / "out"
    kills = 0
    while prepare(athanor, *arguments, "--out", out, fault="prepare.chunk:kill@3,prepare.shard:kill@4", check=False).returncode:
        kills += 1
        assert kills < 50
    assert kills > 4
    assert content(out) == whole


# A file system that cannot exchange two folders; KILL_AFTER is a part of the name after whose rename the process is killed.
NO_EXCHANGE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  errno = EINVAL;
  return -1;
}
int rename(const char* from, const char* to) {
  int (*real)(const char*, const char*) = (int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename");
  const int result = real(from, to);
  if (getenv("KILL_AFTER") && strstr(to, getenv("KILL_AFTER"))) raise(SIGKILL);
  return result;
}
"""


def test_where_folders_cannot_be_exchanged_old_data_are_replaced_all_the_same_and_a_kill_between_loses_nothing(athanor, arguments, whole, tmp_path):
    (tmp_path / "plant.c").write_text(NO_EXCHANGE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "plant.so", tmp_path / "plant.c", "-ldl"], check=True)
    env = {**os.environ, "LD_PRELOAD": str(tmp_path / "plant.so")}
    out = tmp_path / "data" / "out"
    for killed in (False, True):
        athanor.run("prepare", *arguments, "--seed", 9, "--out", out, "--overwrite", env=env)
        old = content(out)
        assert old != whole
        if killed:
            done = athanor.run("prepare", *arguments, "--out", out, "--overwrite", env={**env, "KILL_AFTER": "/replaced"}, check=False)
            assert done.returncode == -signal.SIGKILL and not out.exists()
            assert content(out.with_name("out.partial") / "replaced") == old and content(out.with_name("out.partial") / "data") == whole
        athanor.run("prepare", *arguments, "--out", out, "--overwrite", env=env)
        assert content(out) == whole
        assert os.listdir(out.parent) == ["out"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_asked_to_stop_says_how_to_go_on(athanor, arguments, whole, tmp_path, number):
    out = tmp_path / "out"
    name = {signal.SIGTERM: "term", signal.SIGINT: "int"}[number]
    done = prepare(athanor, *arguments, "--out", out, fault=f"prepare.chunk:{name}@3", check=False)
    assert done.returncode == 128 + number
    assert "run the same command again to continue" in done.stderr
    assert not out.exists()
    prepare(athanor, *arguments, "--out", out)
    assert content(out) == whole


def test_replacing_is_killed_and_something_whole_is_there(athanor, arguments, whole, tmp_path):
    out = tmp_path / "out"
    prepare(athanor, *arguments, "--seed", 9, "--out", out)
    before = content(out)
    assert before != whole
    for place in ["prepare.shard:kill@3", "prepare.before_commit:kill", "prepare.committed:kill"]:
        prepare(athanor, *arguments, "--out", out, "--overwrite", fault=place, check=False)
        assert content(out) == (whole if "committed" in place else before)
    prepare(athanor, *arguments, "--out", out, "--overwrite")
    assert content(out) == whole
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_is_named_and_the_same_command_goes_on(athanor, arguments, whole, tmp_path):
    out = tmp_path / "out"
    for place in ["prepare.chunk:kill@4", "prepare.shard:kill@2"]:
        prepare(athanor, *arguments, "--out", out, fault=place, check=False)
        done = prepare(athanor, *arguments, "--out", out, fault="files.write:enospc@2+", check=False)
        errors = [line for line in done.stderr.splitlines() if " E " in line[:12]]
        assert done.returncode == 2 and len(errors) == 1 and "No space left on device" in errors[0], done.stderr
        assert not out.exists()
    prepare(athanor, *arguments, "--out", out)
    assert content(out) == whole


def test_a_folder_that_cannot_be_written_is_named(athanor, arguments, tmp_path):
    (tmp_path / "file").write_text("in the way")
    message = refused(athanor, *arguments, "--out", tmp_path / "file" / "out")
    assert f"{tmp_path / 'file'} is a file" in message
    if os.geteuid() == 0:
        return  # no folder refuses root
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "Permission denied" in refused(athanor, *arguments, "--out", tmp_path / "closed" / "out")


def test_of_two_runs_at_once_the_second_is_refused(athanor, arguments, whole, tmp_path):
    out = tmp_path / "out"
    command = [str(athanor.path), "prepare", *map(str, arguments), "--out", str(out)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 300
        while not (tmp_path / "out.partial" / "journal").exists() and first.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        os.kill(first.pid, signal.SIGSTOP)
        message = refused(athanor, *arguments, "--out", out)
        assert f"process {first.pid}" in message and "is being prepared by another process" in message
    finally:
        os.kill(first.pid, signal.SIGCONT)
        assert first.wait(timeout=300) == 0
    assert content(out) == whole


def test_other_options_are_refused_until_the_old_work_is_thrown_away(athanor, arguments, tmp_path):
    out = tmp_path / "out"
    prepare(athanor, *arguments, "--out", out, fault="prepare.chunk:kill@3", check=False)
    message = refused(athanor, *arguments, "--seed", 5, "--out", out)
    assert "--seed 1 there, 5 now" in message and "--restart" in message
    prepare(athanor, *arguments, "--seed", 5, "--out", out, "--restart")
    assert json.loads((out / "manifest.json").read_text())["seed"] == 5


@pytest.mark.parametrize("place", ["prepare.chunk:kill@1", "prepare.shard:kill@1", "prepare.before_commit:kill", "prepare.moved:kill@1",
                                   "prepare.moved:kill@2", "prepare.committed:kill"])  # fmt: skip
def test_killed_while_adding_the_old_set_stays_whole_and_the_same_command_adds(athanor, arguments, documents, tmp_path, place):
    *common, _ = arguments
    files = sorted(documents.iterdir())
    out, undisturbed = tmp_path / "out", tmp_path / "undisturbed"
    athanor.run("prepare", *common, "--out", out, files[0])
    shutil.copytree(out, undisturbed)
    athanor.run("prepare", "--add", "--out", undisturbed, *files[1:])
    before = json.loads((out / "manifest.json").read_text())
    add = ["--add", "--threads", 1, "--out", out, *files[1:]]
    assert prepare(athanor, *add, fault=place, check=False).returncode == -signal.SIGKILL
    if "committed" not in place:
        assert json.loads((out / "manifest.json").read_text()) == before
        for split in before["splits"].values():
            assert all((out / shard["file"]).exists() for shard in split["files"])
    prepare(athanor, *add)
    assert content(out) == content(undisturbed)
    manifest = json.loads((out / "manifest.json").read_text())
    stored = sum(split["tokens"] for split in manifest["splits"].values())
    assert manifest["tokens"] == stored + manifest["remainder_tokens"]
    assert len(manifest["inputs"]) == 3 and len(manifest["parts"]) == 2


def test_memory_that_is_too_small_names_what_is_enough(athanor, arguments, whole, tmp_path):
    out = tmp_path / "out"
    message = refused(athanor, *arguments, "--out", out, "--memory", "1M")
    needed = message.split("(")[-1].rstrip(")")
    assert needed.endswith("M") and not os.listdir(tmp_path)
    done = athanor.run("prepare", *arguments, "--out", out, "--memory", f"{int(needed[:-1]) + 2}M")
    assert content(out) == whole
    assert "of memory" in done.stdout


def test_a_document_beyond_the_budget_is_named_with_the_remedy_or_skipped(athanor, tokenizer, tmp_path):
    large = "word " * 2_000_000
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "small " * 100}) + "\n" + json.dumps({"text": large}) + "\n")
    arguments = ["--tokenizer", tokenizer, "--seq-len", 16, "--out", tmp_path / "out", tmp_path / "a.jsonl"]
    message = refused(athanor, *arguments, "--memory", "128M")
    assert "a.jsonl:2: a document of more than" in message and "--memory 128.00MiB" in message and "--on-error skip" in message
    athanor.run("prepare", *arguments, "--memory", "128M", "--on-error", "skip")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["documents"] == 1
    athanor.run("prepare", *arguments, "--overwrite", "--memory", "1G")
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["documents"] == 2
