"""`athanor --version`, and the records of it in manifests and run folders."""
import json
import pathlib
import re
import subprocess

import pytest
from conftest import ROOT
from runs import Run, events, make_data


@pytest.fixture(scope="module")
def version(athanor):
    """The lines of `athanor --version` by their first word."""
    first, *others = athanor.run("--version").stdout.splitlines()
    found = re.fullmatch(r"athanor (\d+\.\d+\.\d+) \((\S+)\)", first)
    assert found, first
    return {"version": found[1], "commit": found[2]} | dict(line.split(None, 1) for line in others)


@pytest.fixture(scope="module")
def data(athanor, tmp_path_factory):
    return make_data(athanor, tmp_path_factory.mktemp("version"))


def test_the_commit_is_that_of_the_checkout_or_unknown(version):
    asked = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    known = version["commit"].removesuffix("+changes")
    if asked.returncode == 0 and known != asked.stdout.strip():
        pytest.skip(f"the build is of {known}, the checkout is at {asked.stdout.strip()}")
    assert known == (asked.stdout.strip() if asked.returncode == 0 else "unknown")


def test_version_names_compiler_libtorch_mpi_and_the_paths_of_the_cpu(version):
    assert set(version) == {"version", "commit", "compiler", "libtorch", "CUDA", "MPI", "Parquet", "CPU"}
    assert re.match(r"\S+ \d+", version["compiler"])
    assert version["libtorch"] == "none" or re.fullmatch(r"\d+\.\d+\.\d+ in /.+", version["libtorch"])
    assert re.fullmatch(r".+ with (neither avx2 nor avx512|avx2.*|AMX)", version["CPU"])


def test_version_names_the_cuda_of_libtorch_and_what_compiled_the_kernels(version):
    if version["libtorch"] == "none":
        assert version["CUDA"] == "none"
        return
    kernels, libtorch = version["CUDA"].split("; ")
    assert kernels == "no kernels (no nvcc at build time)" or re.fullmatch(r"kernels by nvcc \d+\.\d+\.\d+ for \d+.*", kernels)
    folder = pathlib.Path(version["libtorch"].split(" in ")[1])
    if (folder / "version.py").is_file():  # a wheel
        cuda = re.search(r"^cuda\b.*= (?:None|'(.*)')$", (folder / "version.py").read_text(), re.M)[1]
        for_cpus = re.fullmatch(r".+ \((scripts/setup --cuda, then make build|give CUDA_HOME, .+)\)", libtorch)  # with the remedy
        assert libtorch == (f"libtorch for CUDA {cuda}" if cuda else "libtorch has no CUDA") or (cuda and for_cpus)


def test_version_needs_no_libtorch(athanor):
    done = athanor.run("--version", env={"LD_DEBUG": "libs"})
    assert "libathanor.so" in done.stderr and "libtorch" not in done.stderr


def test_a_data_manifest_names_the_program_that_prepared_each_part(athanor, data, version):
    part, = json.loads((data / "manifest.json").read_text())["parts"]
    program = {"version": version["version"], "commit": version["commit"]}
    assert part["athanor"] == program
    assert f"prepared by: athanor {program['version']} ({program['commit']})" in athanor.run("data", "info", data).stdout


def test_a_data_manifest_without_the_record_is_read(athanor, data, tmp_path):
    manifest = json.loads((data / "manifest.json").read_text())
    del manifest["parts"][0]["athanor"]
    for file in data.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert "prepared by" not in athanor.run("data", "info", tmp_path).stdout
    athanor.run("data", "verify", tmp_path)


def test_checkpoints_and_each_attempt_of_a_run_name_the_program(athanor, data, tmp_path, version):
    run = Run(athanor, tmp_path, data)
    run.train("train.steps=3")
    run.train("train.steps=8")
    program = {"version": version["version"], "commit": version["commit"]}
    assert run.manifest(8)["athanor"] == program
    starts = events(run, "start", "resume")
    assert [start["athanor"] for start in starts] == [program] * 2
    for start in starts:
        assert start["libtorch"] == version["libtorch"].split()[0]
        assert start["cpu"] == version["CPU"]
        assert "mpi" not in start  # nothing was started by a launcher
