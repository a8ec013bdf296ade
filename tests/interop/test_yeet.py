"""`athanor yeet` on this machine alone: archives of other programs, what is refused, and the prediction."""
import io
import json
import os
import shutil
import subprocess
import tarfile

import pytest


@pytest.fixture
def yeet(athanor, tmp_path):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PBS_", "LSB_", "OMPI_", "PMI_"))}

    def run(*words, env=None):
        return athanor.run("yeet", *words, check=False, env={**kept, **(env or {})}, cwd=tmp_path)
    return run


def refused(done):
    assert done.returncode == 2 and not done.stdout, done.stdout + done.stderr
    line = done.stderr.strip()
    assert "\n" not in line, line
    return line


def make_tree(folder):
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/run").write_text("#!/bin/sh\n")
    (folder / "bin/run").chmod(0o755)
    (folder / ("long-" * 40)).write_text("a name of 200 bytes")
    (folder / "größe").write_text("letters that no ASCII locale has")
    (folder / "data").write_bytes(os.urandom(3 << 20))
    (folder / "link").symlink_to("bin/run")
    os.link(folder / "data", folder / "same")
    return folder


def compare(a, b):
    done = subprocess.run(["diff", "--no-dereference", "-r", str(a), str(b)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("options,name", [([], "env.tar"), (["-z"], "env.tar.gz"), (["--zstd"], "env.tar.zst"), (["--format=pax", "-z"], "env.tgz"),
                                          (["--format=gnu"], "env.tar"), (["--format=posix", "-S"], "env.tar")])
def test_archives_of_tar_are_unpacked(yeet, tmp_path, options, name):
    make_tree(tmp_path / "env")
    subprocess.run(["tar", *options, "-cf", name, "env"], cwd=tmp_path, check=True)
    done = yeet(name, "--to", "to", "--chunk-mib", 1, env={"LC_ALL": "C"})
    assert done.returncode == 0, done.stderr
    compare(tmp_path / "env", tmp_path / "to/env")
    assert os.stat(tmp_path / "to/env/bin/run").st_mode & 0o777 == 0o755
    assert not (tmp_path / "to" / name).exists()
    again = yeet(name, "--to", "to")
    assert again.returncode == 0 and "already" in again.stdout, again.stdout


@pytest.mark.parametrize("target", ["env", "env/to", "link/to"])
def test_a_folder_is_not_sent_into_itself(yeet, tmp_path, target):
    make_tree(tmp_path / "env")
    (tmp_path / "link").symlink_to("env")
    assert "is in SRC env" in refused(yeet("env", "--to", target))
    assert not (tmp_path / "env/to").exists() and not (tmp_path / "env/.athanor-yeet").exists()
    assert yeet("env", "--to", "env2").returncode == 0  # a name that begins in the same way


def test_a_source_without_a_name_is_refused(yeet):
    assert "is no path" in refused(yeet("", "--to", "to"))


def test_with_no_unpack_an_archive_is_a_file(yeet, tmp_path):
    (tmp_path / "env").mkdir()
    subprocess.run(["tar", "-cf", "env.tar", "env"], cwd=tmp_path, check=True)
    assert yeet("env.tar", "--to", "to", "--no-unpack").returncode == 0
    assert (tmp_path / "to/env.tar").read_bytes() == (tmp_path / "env.tar").read_bytes()


@pytest.mark.parametrize("path,target", [("../outside", None), ("/tmp/athanor-outside", None), ("a/../../outside", None), ("link", "/etc"),
                                         ("a/link", "../../outside")])
def test_archives_that_leave_the_folder_are_refused(yeet, tmp_path, path, target):
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as tar:
        good = tarfile.TarInfo("good")
        good.size = 1
        tar.addfile(good, io.BytesIO(b"x"))
        member = tarfile.TarInfo(path)
        if target:
            member.type, member.linkname = tarfile.SYMTYPE, target
        tar.addfile(member)
    done = yeet("evil.tar.gz", "--to", "to")
    assert done.returncode in (2, 74) and path in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "outside").exists() and not (tmp_path / "to/good").exists()


def test_what_is_wrong_is_answered_in_one_line(yeet, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty.tar").write_text("")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/file").write_text("y")
    assert "nowhere" in refused(yeet("nowhere", "--to", "to"))
    assert "SRC" in refused(yeet("--to", "to"))
    assert "--to" in refused(yeet("file"))
    assert "is or is in a file" in refused(yeet("file", "--to", "more/file"))
    assert "both be file" in refused(yeet("file", "more/file", "--to", "to"))
    assert "has no name" in refused(yeet("/", "--to", "to"))
    assert "--no-unpack" in refused(yeet("empty.tar", "--to", "to"))
    assert "--bytes" in refused(yeet("--predict", "8"))
    os.mkfifo(tmp_path / "pipe")
    assert "no file, folder or link" in refused(yeet("pipe", "--to", "to"))
    assert not (tmp_path / "to").exists()


def test_the_disk_must_have_room_before_anything_is_sent(yeet, tmp_path):
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("a small disk needs root")
    (tmp_path / "file").write_bytes(os.urandom(3 << 20))
    (tmp_path / "small").mkdir()
    script = f"mount -t tmpfs -o size=1m tmpfs {tmp_path}/small && exec {yeet.__closure__[0].cell_contents.path} yeet {tmp_path}/file --to {tmp_path}/small"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True)
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert "has room for" in refused(done)


def test_the_prediction_has_the_published_times_next_to_it(yeet):
    words = ["--predict", "8,512,4096", "--bytes", "5e9", "--link", "10000", "--disk", "2000"]
    done = yeet(*words, "--json")
    rows = json.loads(done.stdout)["prediction"]
    assert [row["published_seconds"] for row in rows] == [69.7, 174.5, 750.6]
    assert all(2.5 < row["seconds"] < 2.6 for row in rows), rows  # the disks are the slowest: 5 GB at 2 GB/s
    assert "750.6" in yeet(*words).stdout
