"""`athanor yeet` with several ranks under each MPI. The ranks share this machine's disk, so {rank} gives each its own folder."""
import json
import os
import random

import launchers
import pytest


def make_source(folder):
    """Long files, short ones, an empty one, a link and odd names; returns the folder."""
    draw = random.Random(1)
    (folder / "lib").mkdir(parents=True)
    (folder / "lib/long").write_bytes(draw.randbytes(9 << 20))
    (folder / "lib/exact").write_bytes(draw.randbytes(2 << 20))
    for i in range(40):
        (folder / f"lib/{i}.py").write_bytes(draw.randbytes(i * 100))
    os.mkdir(folder / "empty")
    os.symlink("lib/long", folder / "link")
    with open(os.path.join(os.fsencode(folder), b"odd\n\xff"), "wb") as odd:
        odd.write(b"x")
    os.chmod(folder / "lib/exact", 0o751)
    return folder


def what_is_in(folder):
    found = {}
    for at, folders, files in os.walk(os.fsencode(folder)):
        for name in folders + files:
            path = os.path.join(at, name)
            status = os.lstat(path)
            content = os.readlink(path) if os.path.islink(path) else open(path, "rb").read() if os.path.isfile(path) else None
            found[os.path.relpath(path, os.fsencode(folder))] = (status.st_mode, content)
    return found


@pytest.fixture
def source(tmp_path):
    return make_source(tmp_path / "src")


def test_all_nodes_get_the_files_and_the_report_names_each(mpi, program, source, tmp_path):
    code, out, err, _ = mpi.run(3, program("athanor"), "yeet", source, "--to", tmp_path / "to-{rank}", "--chunk-mib", 1, "--json")
    assert code == 0, out + err
    for rank in range(3):
        assert what_is_in(tmp_path / f"to-{rank}") == {b"src": (os.stat(source).st_mode, None), **{b"src/" + name: it for name, it in what_is_in(source).items()}}
    report = json.loads(out)
    size = sum(len(content) for mode, content in what_is_in(source).values() if content and not os.path.islink(source / "x"))
    assert report["nodes"] == 3 and [line["node"] for line in report["by_node"]] == [0, 1, 2]
    assert all(line["bytes"] == report["bytes"] and line["seconds"] > 0 for line in report["by_node"])
    assert report["bytes"] <= size
    assert report["bytes"] == report["sent_bytes"], err
    assert report["slowest"][0]["seconds"] == report["seconds"] == max(line["seconds"] for line in report["by_node"])
    code, out, err, _ = mpi.run(3, program("athanor"), "yeet", source, "--to", tmp_path / "to-{rank}", "--chunk-mib", 1)
    assert code == 0 and "is on 3 nodes already" in out, out + err


def test_after_a_killed_rank_the_same_command_sends_what_is_missing(mpi, program, source, tmp_path):
    words = ["yeet", source, "--to", tmp_path / "to-{rank}", "--chunk-mib", 1]
    killed = launchers.with_fault_on(program("athanor"), 1, "yeet.chunk:kill@5", tmp_path / "killed")
    code, out, err, _ = mpi.run(3, killed, *words)
    assert code != 0, out + err
    assert not (tmp_path / "to-1/src/lib/long").exists()
    code, out, err, _ = mpi.run(3, program("athanor"), *words, "--json")
    assert code == 0, out + err
    report = json.loads(out)
    assert report["by_node"][1]["bytes"] <= report["bytes"] - (3 << 20), report  # three of the four it has written are of long files
    for rank in range(3):
        assert what_is_in(tmp_path / f"to-{rank}/src") == what_is_in(source)


def test_a_full_disk_is_named_and_the_other_nodes_have_everything(mpi, program, source, tmp_path):
    words = ["yeet", source, "--to", tmp_path / "to-{rank}", "--chunk-mib", 1]
    full = launchers.with_fault_on(program("athanor"), 1, "yeet.write:enospc@3", tmp_path / "full")
    code, out, err, _ = mpi.run(3, full, *words)
    assert code == 74, out + err
    lines = [line for line in err.splitlines() if "No space left" in line]
    assert len(lines) == 1 and "to-1/src/lib/" in lines[0], err
    for rank in (0, 2):
        assert what_is_in(tmp_path / f"to-{rank}/src") == what_is_in(source)
    assert mpi.run(3, program("athanor"), *words)[0] == 0
    assert what_is_in(tmp_path / "to-1/src") == what_is_in(source)


def test_a_source_that_is_not_there_is_refused_once(mpi, program, tmp_path):
    code, out, err, _ = mpi.run(3, program("athanor"), "yeet", tmp_path / "nowhere", "--to", tmp_path / "to-{rank}")
    assert code == 2, out + err
    assert err.count("nowhere") == 1 and not (tmp_path / "to-0").exists(), err


def test_a_folder_that_all_nodes_share_is_refused(mpi, program, source, tmp_path):
    wrapper = tmp_path / "hosts"
    wrapper.write_text(f'#!/bin/sh\nexec unshare --uts sh -c \'hostname node${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; exec {program("athanor")} "$@"\' sh "$@"\n')
    wrapper.chmod(0o755)
    if os.geteuid() != 0:
        pytest.skip("other host names need root")
    if mpi.name == "Open MPI":
        pytest.skip("its ranks take shared memory by the name of the host")
    code, out, err, _ = mpi.run(2, wrapper, "yeet", source, "--to", tmp_path / "shared")
    assert code == 2 and "{host}" in err, out + err


def test_without_mpi_one_machine_is_a_local_copy(torchrun, program, source, tmp_path):
    code, out, err, _ = torchrun.run(2, program("athanor"), "yeet", source, "--to", tmp_path / "to", env={"LOCAL_WORLD_SIZE": "2"})
    assert code == 0, out + err
    assert what_is_in(tmp_path / "to/src") == what_is_in(source)
